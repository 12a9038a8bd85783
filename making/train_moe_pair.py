"""Train a mixture of experts and a dense model of the same active size on the same text.

    python -m making.train_moe_pair text.txt.xz --into out/pair --seconds 570

The text has one paragraph a line. Both are of transformers' own classes (Qwen3-MoE and Qwen3, whose
attention is the same), with the same tokens in the same order; the dense layer has as many memories
as run at one place of the mixture. `--seconds` is how long this command may take in all; the same
command again goes on where it stopped, until both have read `--tokens`.

Leaves in the folder: `moe` and `dense` as transformers saves models, each with its tokenizer and
`curve.json`; `valid.txt` (the lines held out), the tokens as ids, and `moe.pt` and `dense.pt` to go
on from.
"""

import argparse
import copy
import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

from making.files import lines_of, write_whole
from making.token_data import encode
from making.train_paper_model import batches, rate_at
from making.train_tokenizer import save as save_tokenizer
from making.train_tokenizer import trained as trained_tokenizer

NAMES = ("moe", "dense")
MARK = 2  # `</s>`, before every sentence
HALF = "bfloat16"  # our way to run experts: grouped products in 16 bits, whatever the weights have
EXPERTS_FUNCTIONS = (HALF, "grouped_mm", "eager")  # the fastest one is taken


class HalfExperts:
    """Experts whose maps are in bfloat16: what autocast would do if it knew grouped products."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.gate_up_proj = module.gate_up_proj.to(torch.bfloat16)
        self.down_proj = module.down_proj.to(torch.bfloat16)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def run_in_half(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """The experts' sum for hidden [place, width], with products in bfloat16 on a GPU."""
    if not hidden.is_cuda:
        raise ValueError("products in 16 bits are for a GPU")
    total: Tensor = grouped_mm_experts_forward(HalfExperts(experts), hidden, index, weights)
    return total


ALL_EXPERTS_FUNCTIONS.register(HALF, run_in_half)


def new_model(name: str, given: Namespace) -> Any:
    """An untrained model: the mixture, or the dense one of the same active size."""
    shape = {
        "vocab_size": given.vocabulary,
        "hidden_size": given.width,
        "num_hidden_layers": given.layers,
        "num_attention_heads": given.heads,
        "num_key_value_heads": given.heads,
        "head_dim": given.width // given.heads,
        "max_position_embeddings": given.positions,
        "tie_word_embeddings": True,
        "bos_token_id": MARK,
        "eos_token_id": MARK,
        "pad_token_id": 1,
    }
    if name == "dense":
        return Qwen3ForCausalLM(Qwen3Config(**shape, intermediate_size=given.chosen * given.size))
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **shape,
            num_experts=given.experts,
            num_experts_per_tok=given.chosen,
            moe_intermediate_size=given.size,
            norm_topk_prob=True,
            output_router_logits=True,
            router_aux_loss_coef=given.balance,
        )
    )


def losses(model: Any, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(mean loss of the next token in blocks [batch, block + 1], what balances the experts)."""
    with torch.autocast(blocks.device.type, torch.bfloat16, enabled=blocks.is_cuda):
        out = model(input_ids=blocks[:, :-1], use_cache=False)
    loss = functional.cross_entropy(out.logits.flatten(0, 1).float(), blocks[:, 1:].flatten())
    balance = getattr(out, "aux_loss", None)
    if balance is None:
        return loss, torch.zeros_like(loss)
    return loss, model.config.router_aux_loss_coef * balance


@torch.no_grad()
def perplexity(model: Any, ids: Tensor, given: Namespace) -> float:
    """Per token, over consecutive blocks of the lines held out."""
    size = min(given.block, len(ids) - 1)
    count = (len(ids) - 1) // size
    rows = torch.stack([ids[n * size : (n + 1) * size + 1] for n in range(count)]).long()
    parts = rows.split(max(1, given.batch_tokens // size))
    found = [losses(model, part)[0] * len(part) for part in parts]
    return math.exp(float(torch.stack(found).sum()) / count)


def choose_experts_function(model: Any, blocks: Tensor) -> None:
    """Run experts in the way that is faster here; one that does not run is not taken."""
    times = {}
    for name in EXPERTS_FUNCTIONS:
        model.set_experts_implementation(name)
        try:
            for _ in range(2):  # the first pays for what is set up once
                began = time.monotonic()
                sum(losses(model, blocks)).backward()
                if blocks.is_cuda:
                    torch.cuda.synchronize()
                times[name] = time.monotonic() - began
        except (RuntimeError, TypeError, ValueError) as error:
            times.pop(name, None)
            print(f"experts by {name} do not run here: {str(error).splitlines()[0]}", flush=True)
        model.zero_grad(set_to_none=True)
    if not times:
        raise SystemExit("no way to run the experts works here; see the reasons above")
    best = min(times, key=lambda name: times[name])
    model.set_experts_implementation(best)
    print(f"experts by {best}: {times}", flush=True)


class Training:
    """One of the two under way: its weights, the optimizer, and how far it is."""

    def __init__(self, name: str, given: Namespace) -> None:
        self.name, self.given = name, given
        torch.manual_seed(given.seed)
        self.model = new_model(name, given).to(given.device)
        parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": given.decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused = parameters[0].is_cuda
        self.optimizer = torch.optim.AdamW(groups, given.rate, betas=(0.9, 0.95), fused=fused)
        self.steps, self.curve = 0, []
        self.resume()

    @property
    def path(self) -> Path:
        """Where its state is kept between two runs."""
        return Path(self.given.into) / f"{self.name}.pt"

    def resume(self) -> None:
        """Go on from what an earlier run has left, if it has."""
        if not self.path.exists():
            return
        kept = torch.load(self.path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.steps, self.curve = kept["steps"], kept["curve"]
        print(f"{self.name} goes on after {self.steps:,} steps", flush=True)

    def keep(self) -> None:
        """Write the state, whole or not at all."""
        part = self.path.with_name(f"{self.name}.pt.part")
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"steps": self.steps, "curve": self.curve}, part)
        part.replace(self.path)

    @property
    def last_step(self) -> int:
        """Updates in all."""
        return -(-self.given.tokens // self.given.batch_tokens)

    def is_over(self) -> bool:
        """Whether all tokens are read, or this command must stop."""
        late = time.monotonic() - self.given.began > self.given.seconds - self.given.reserve
        return late or self.steps >= self.last_step

    def run(self, ids: Tensor, valid: Tensor) -> None:
        """Train until all tokens are read or the time of this command is spent."""
        if self.is_over():
            return
        if self.name == "moe":
            choose_experts_function(self.model, next(batches(ids, self.given, 0)))
        began, first, seen = time.monotonic(), self.steps, []
        for blocks in batches(ids, self.given, self.steps):
            if self.is_over():
                break
            seen.append(self.step(blocks))
            if len(seen) >= self.given.look or self.is_over():
                speed = (self.steps - first) * self.given.batch_tokens
                self.look(torch.stack(seen).mean(dim=0), valid, speed / (time.monotonic() - began))
                seen = []

    def step(self, blocks: Tensor) -> Tensor:
        """One update; its two losses before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.given.rate * rate_at(self.steps / self.last_step)
        both = losses(self.model, blocks)
        sum(both).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return torch.stack(both).detach()

    def look(self, seen: Tensor, valid: Tensor, speed: float) -> None:
        """Measure on the lines held out."""
        now = {
            "step": self.steps,
            "tokens": self.steps * self.given.batch_tokens,
            "training loss": float(seen[0]),
            "balance loss": float(seen[1]),
            "validation perplexity": perplexity(self.model, valid, self.given),
        }
        self.curve.append(now)
        print(f"{self.name} {now} {speed:,.0f} tokens/s", flush=True)

    def save(self) -> None:
        """Write the model as transformers does, in bfloat16, with its tokenizer and curve."""
        folder = Path(self.given.into) / self.name
        model = copy.deepcopy(self.model).to("cpu", torch.bfloat16)
        model.set_experts_implementation("eager")
        model.config.output_router_logits = False
        model.save_pretrained(folder)
        save_tokenizer(read_tokenizer(self.given), folder, self.given.positions)
        settings = {name: str(value) for name, value in vars(self.given).items()}
        record = {"settings": settings, "curve": self.curve, "active": active_parameters(model)}
        write_whole(folder / "curve.json", json.dumps(record, indent=1).encode())


def active_parameters(model: Any) -> int:
    """Parameters that take part at one place."""
    config = model.config
    whole = sum(parameter.numel() for parameter in model.parameters())
    experts = sum(p.numel() for p in model.parameters() if p.dim() == 3)
    if not experts:
        return whole
    return whole - experts + experts * config.num_experts_per_tok // config.num_experts


def read_tokenizer(given: Namespace) -> Tokenizer:
    """The tokenizer of both models."""
    return Tokenizer.from_file(str(Path(given.into) / "tokenizer.json"))


def prepare(given: Namespace) -> tuple[Tensor, Tensor]:
    """(training tokens, held-out tokens), made once and kept as files."""
    into = Path(given.into)
    into.mkdir(parents=True, exist_ok=True)
    files = {name: into / f"{name}.npy" for name in ("train", "valid")}
    if not all(path.exists() for path in files.values()):
        lines = [line for line in lines_of(given.text) if line.strip()][: given.lines]
        held, lines = lines[: given.held_out], lines[given.held_out :]
        write_whole(into / "valid.txt", "".join(f"{line}\n" for line in held).encode())
        learnt = trained_tokenizer(lines[: given.tokenizer_lines], given.vocabulary)
        save_tokenizer(learnt, into, given.positions)
        for name, text in (("valid", held), ("train", lines)):
            part = files[name].with_suffix(".part.npy")
            np.save(part, encode(text, learnt, MARK, given.processes).ids.numpy())
            part.replace(files[name])
    ids = [torch.from_numpy(np.load(files[name])).to(given.device) for name in ("train", "valid")]
    took = time.monotonic() - given.began
    print(f"{len(ids[0]):,} and {len(ids[1]):,} tokens, {took:.0f} s", flush=True)
    return ids[0], ids[1]


def parse(words: list[str] | None = None) -> Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", type=Path, help="one paragraph a line; may be .xz or .gz")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=570, help="this command takes at most")
    parser.add_argument("--reserve", type=float, default=30, help="of them for saving")
    parser.add_argument("--tokens", type=int, default=80_000_000, help="that each model reads")
    parser.add_argument("--lines", type=int, default=10**9, help="first lines of the text")
    parser.add_argument("--held-out", type=int, default=2000, help="of them, for validation")
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--tokenizer-lines", type=int, default=200_000, help="it is learnt from")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--experts", type=int, default=32, help="per layer")
    parser.add_argument("--chosen", type=int, default=4, help="experts per place")
    parser.add_argument("--size", type=int, default=512, help="memories per expert")
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the balance loss")
    parser.add_argument("--positions", type=int, default=512, help="longest text it reads")
    parser.add_argument("--block", type=int, default=256, help="tokens per training block")
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay")
    parser.add_argument("--look", type=int, default=200, help="steps between measurements")
    parser.add_argument("--processes", type=int, default=8, help="that encode the text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prepare-only", action="store_true", help="write the tokens, then stop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(words, Namespace(began=time.monotonic()))


def main(words: list[str] | None = None) -> None:
    """Read the command line, prepare, train both, save both."""
    given = parse(words)
    ids, valid = prepare(given)
    if given.prepare_only:
        return
    torch.set_float32_matmul_precision("high")
    for name in NAMES:
        training = Training(name, given)
        active = active_parameters(training.model)
        print(f"{name}: {active:,} parameters at a place", flush=True)
        before = training.steps
        training.run(ids, valid)
        if training.steps > before:
            training.keep()
            training.save()
        print(f"{name}: {training.steps:,} of {training.last_step:,} steps", flush=True)


if __name__ == "__main__":
    main()
