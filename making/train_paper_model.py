"""Train the paper's own architecture on text, one paragraph a line, and save it as fairseq does.

    python -m making.train_paper_model text.txt.xz --into out/paper --seconds 570 --budget 1200

16 layers of width 1024 with 4,096 memories each, pre-norm, ReLU, no final norm, adaptive input and
adaptive softmax over at most 267,744 words in WikiText's form. `--seconds` is how long this command
may take in all; the same command again goes on where it stopped, until `--budget` seconds of
training are spent: the learning rate rises, then falls along a cosine over the whole budget.

Leaves in the folder: `dict.txt` and `model.pt` as fairseq saves them (`ffmem models convert`),
`curve.json`, `train.txt` and `valid.txt` (the lines trained on and those held out), the words as
ids, and `state.pt` to go on from.
"""

import argparse
import json
import math
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ffmem.models.fairseq.adaptive_model import FairseqConfig, FairseqForCausalLM
from ffmem.models.fairseq.word_list import read_words
from torch import Tensor, nn
from torch.nn import functional

from making.files import lines_of, write_whole
from making.train_model import rate_at
from making.word_data import encode_words, write_dictionary

Model = Any
WARM_UP = 0.02  # share of the budget in which the learning rate rises


def bands(words: int, given: Namespace) -> list[list[int]]:
    """[words, width of a row] of every band: the more frequent the words, the wider."""
    cuts = [cut for cut in given.cutoffs if cut < words]
    edges = [0, *cuts, words]
    return [
        [end - start, max(1, given.width // given.factor**number)]
        for number, (start, end) in enumerate(zip(edges, edges[1:], strict=False))
    ]


def new_model(given: Namespace, words: int) -> Model:
    """An untrained model."""
    ends = bands(words, given)
    config = FairseqConfig(
        vocab_size=words,
        d_model=given.width,
        ffn_dim=given.memories,
        num_layers=given.layers,
        attention_heads=given.heads,
        activation_function="relu",
        max_position_embeddings=given.positions,
        dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=2,
        input_bands=ends,
        output_bands=ends,
        final_norm=False,
    )
    model = FairseqForCausalLM(config)
    with torch.no_grad():  # what is added to the residual starts small, as there are many layers
        for layer in model.model.layers:
            for matrix in (layer.self_attn.out_proj.weight, layer.fc2.weight):
                matrix /= math.sqrt(2 * given.layers)
    return model


def block_output(layer: Any, h: Tensor) -> Tensor:
    """One block with fused attention: the same numbers as the layer's own, in less memory."""
    attention, x = layer.self_attn, layer.self_attn_layer_norm(h)
    q, k, v = (
        part(x).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    read = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    h = h + attention.out_proj(read.transpose(1, 2).flatten(2))
    return h + layer.fc2(functional.relu(layer.fc1(layer.final_layer_norm(h))))


def states(model: Model, ids: Tensor, block: Callable[..., Tensor] = block_output) -> Tensor:
    """What leaves the last block at every place of ids [batch, position]."""
    places = torch.arange(ids.shape[1], device=ids.device)[None]
    h = model.model.embed_tokens(ids) + model.model.embed_positions(places, 0)
    for layer in model.model.layers:
        h = block(layer, h)
    return h


def loss_of(head: Any, h: Tensor, targets: Tensor) -> Tensor:
    """Mean -log p of the targets [place] after states [place, width].

    A band's own softmax is taken only where the target is in the band.
    """
    first, edges = head.sizes[0], np.cumsum([0, *head.sizes]).tolist()
    choice = targets.clone()
    total = h.new_zeros((), dtype=torch.float32)
    for number in range(1, len(head.sizes)):
        mine = ((targets >= edges[number]) & (targets < edges[number + 1])).nonzero().flatten()
        choice[mine] = first + number - 1
        scores = h[mine] @ head.projection(number) @ head.rows(number).T
        inside = targets[mine] - edges[number]
        total = total + functional.cross_entropy(scores.float(), inside, reduction="sum")
    weights = torch.cat([head.rows(0), head.classes])
    total = total + functional.cross_entropy((h @ weights.T).float(), choice, reduction="sum")
    return total / len(targets)


def training_loss(model: Model, blocks: Tensor, block: Callable[..., Tensor]) -> Tensor:
    """Mean loss of the next word in blocks [batch, block + 1]."""
    with torch.autocast(blocks.device.type, torch.bfloat16, enabled=blocks.is_cuda):
        h = states(model, blocks[:, :-1], block)
        return loss_of(model.lm_head, h.flatten(0, 1), blocks[:, 1:].flatten())


@torch.no_grad()
def perplexity(model: Model, ids: Tensor, given: Namespace) -> float:
    """Per word and line end, over consecutive blocks of the text."""
    size = min(given.block, len(ids) - 1)
    count = (len(ids) - 1) // size
    rows = torch.stack([ids[n * size : (n + 1) * size + 1] for n in range(count)]).long()
    parts = rows.split(max(1, given.batch_tokens // size))
    losses = [training_loss(model, part, block_output) * len(part) for part in parts]
    return math.exp(float(torch.stack(losses).sum()) / count)


def batches(ids: Tensor, given: Namespace, done: int) -> Iterator[Tensor]:
    """Blocks [batch, block + 1] without end, in another order each epoch; the first `done` passed.

    Each epoch begins at another word, so that blocks are cut at other places.
    """
    size = max(1, given.batch_tokens // given.block)
    offsets = torch.arange(given.block + 1, device=ids.device)
    for epoch in range(10**6):
        generator = torch.Generator().manual_seed(given.seed + epoch)
        shift = int(torch.randint(given.block, (1,), generator=generator))
        starts = torch.arange(shift, len(ids) - given.block, given.block)
        if len(starts) < size:
            raise SystemExit(f"only {len(starts)} blocks; lower --batch-tokens or give more text")
        order = starts[torch.randperm(len(starts), generator=generator)]
        for batch in order[: len(order) // size * size].view(-1, size):
            if done:
                done -= 1
                continue
            yield ids[batch.to(ids.device)[:, None] + offsets].long()


class Training:
    """A model under way: its weights, the optimizer, and what has been spent."""

    def __init__(self, model: Model, given: Namespace) -> None:
        self.model, self.given = model, given
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": given.decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused = parameters[0].is_cuda
        self.optimizer = torch.optim.AdamW(groups, given.rate, betas=(0.9, 0.95), fused=fused)
        self.steps, self.spent = 0, 0.0
        self.curve: list[dict[str, float]] = []
        self.block: Callable[..., Tensor] = block_output
        if given.compile:
            torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
            self.block = torch.compile(block_output)

    @property
    def path(self) -> Path:
        """Where its state is kept between two runs."""
        return Path(self.given.into) / "state.pt"

    def resume(self) -> None:
        """Go on from what an earlier run has left, if it has."""
        if not self.path.exists():
            return
        kept = torch.load(self.path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.steps, self.spent, self.curve = kept["steps"], kept["spent"], kept["curve"]
        print(f"goes on after {self.steps:,} steps and {self.spent:.0f} s", flush=True)

    def keep(self) -> None:
        """Write the state, whole or not at all."""
        part = self.path.with_name("state.pt.part")
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        kept = {"steps": self.steps, "spent": self.spent, "curve": self.curve}
        torch.save(state | kept, part)
        part.replace(self.path)

    def step(self, blocks: Tensor) -> Tensor:
        """One update; the loss before it."""
        share = max(self.spent / self.given.budget, self.steps / self.given.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.given.rate * rate_at(share, WARM_UP)
        loss = training_loss(self.model, blocks, self.block)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return loss.detach()

    def is_over(self) -> bool:
        """Whether the budget is spent, or this command must stop."""
        given = self.given
        late = time.monotonic() - given.began > given.seconds - given.reserve
        return late or self.spent >= given.budget or self.steps >= given.steps

    def run(self, ids: Tensor, valid: Tensor) -> None:
        """Train until the budget or the time of this command is spent."""
        losses: list[Tensor] = []
        source = batches(ids, self.given, self.steps)
        if not self.is_over():
            training_loss(self.model, next(batches(ids, self.given, 0)), self.block).backward()
            self.optimizer.zero_grad(set_to_none=True)  # that compiled; the clock starts now
        while not self.is_over():
            begin = time.monotonic()
            losses.append(self.step(next(source)))
            if len(losses) >= self.given.look or self.is_over():
                mean = torch.stack(losses).mean().item()
                self.spent += time.monotonic() - begin
                self.look(mean, valid)
                losses = []
            else:
                self.spent += time.monotonic() - begin

    def look(self, loss: float, valid: Tensor) -> None:
        """Measure on the lines held out."""
        seen = self.steps * max(1, self.given.batch_tokens // self.given.block) * self.given.block
        now = {
            "step": self.steps,
            "tokens": seen,
            "seconds": round(self.spent, 1),
            "training loss": loss,
            "validation perplexity": perplexity(self.model, valid, self.given),
        }
        self.curve.append(now)
        print(f"{now} {seen / max(self.spent, 1e-9):,.0f} tokens/s", flush=True)


def fairseq_name(name: str) -> str:
    """What fairseq calls one of our weights."""
    place, _, last = name.rpartition(".")
    kind, _, number = last.rpartition("_")
    if place == "model.embed_tokens":
        part = 0 if kind == "rows" else 1
        return f"decoder.embed_tokens.embeddings.{number}.{part}.weight"
    if place == "lm_head":
        if last in ("rows_0", "classes"):
            part_name = "word_proj" if last == "rows_0" else "class_proj"
            return f"decoder.adaptive_softmax.head.{part_name}.weight"
        part = 2 if kind == "rows" else 0
        return f"decoder.adaptive_softmax.tail.{int(number) - 1}.{part}.weight"
    return "decoder." + name.removeprefix("model.")


def save_as_fairseq(model: Model, given: Namespace, path: Path) -> None:
    """Write weights and settings as fairseq's trainer does."""
    weights = {
        fairseq_name(name): tensor.detach().cpu() for name, tensor in model.state_dict().items()
    }
    version = torch.tensor([3.0])
    weights |= {"decoder.version": version, "decoder.adaptive_softmax.version": version.clone()}
    cutoffs = ",".join(map(str, given.cutoffs))
    settings = Namespace(
        arch="transformer_lm_wiki103",
        decoder_layers=given.layers,
        decoder_embed_dim=given.width,
        decoder_ffn_embed_dim=given.memories,
        decoder_attention_heads=given.heads,
        activation_fn="relu",
        no_decoder_final_norm=True,
        adaptive_input=True,
        adaptive_input_cutoff=cutoffs,
        adaptive_softmax_cutoff=cutoffs,
        adaptive_input_factor=given.factor,
        adaptive_softmax_factor=given.factor,
        tie_adaptive_weights=True,
        tie_adaptive_proj=True,
        tokens_per_sample=given.positions,
        max_target_positions=given.positions,
    )
    part = path.with_name(path.name + ".part")
    torch.save({"args": settings, "model": weights, "extra_state": {}}, part)
    part.replace(path)


def prepare(given: Namespace) -> tuple[Tensor, Tensor, int]:
    """(training words, held-out words, size of the vocabulary), made once and kept as files."""
    into = Path(given.into)
    into.mkdir(parents=True, exist_ok=True)
    files = {name: into / f"{name}.npy" for name in ("train", "valid")}
    if not all(path.exists() for path in files.values()):
        lines = [line for line in lines_of(given.text) if line.strip()]
        held, lines = lines[: given.held_out], lines[given.held_out :]
        for name, part in (("valid", held), ("train", lines)):
            write_whole(into / f"{name}.txt", "".join(f"{line}\n" for line in part).encode())
        jobs = given.processes
        write_dictionary(lines, into / "dict.txt", given.vocabulary, given.least, jobs)
        for name, text in (("valid", held), ("train", lines)):
            unfinished = files[name].with_suffix(".part.npy")
            np.save(unfinished, encode_words(text, into / "dict.txt", jobs))
            unfinished.replace(files[name])
    ids = [torch.from_numpy(np.load(files[name])) for name in ("train", "valid")]
    words = len(read_words(into / "dict.txt"))
    unknown = float((ids[0] == 3).float().mean())
    print(
        f"{len(ids[0]):,} and {len(ids[1]):,} words, {words:,} different, "
        f"{unknown:.2%} unknown, {time.monotonic() - given.began:.0f} s",
        flush=True,
    )
    return ids[0].to(given.device), ids[1].to(given.device), words


def parse(words: list[str] | None = None) -> Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", type=Path, help="one paragraph a line; may be .xz or .gz")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=570, help="this command takes at most")
    parser.add_argument("--reserve", type=float, default=40, help="of them for saving")
    parser.add_argument("--budget", type=float, default=1200, help="seconds of training in all")
    parser.add_argument("--steps", type=int, default=10**9, help="most updates in all")
    parser.add_argument("--vocabulary", type=int, default=267_744, help="most ids")
    parser.add_argument("--least", type=int, default=3, help="occurrences of a word")
    parser.add_argument("--held-out", type=int, default=2000, help="first lines, for validation")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--memories", type=int, default=4096, help="per layer")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--positions", type=int, default=3072, help="longest text it reads")
    parser.add_argument("--cutoffs", type=cut_list, default=[20_000, 60_000])
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--block", type=int, default=1024, help="words per training block")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--rate", type=float, default=7e-4, help="highest learning rate")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay")
    parser.add_argument("--look", type=int, default=250, help="steps between measurements")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--prepare-only", action="store_true", help="write the words, then stop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(words, Namespace(began=time.monotonic()))


def cut_list(text: str) -> list[int]:
    """Read `20000,60000`."""
    return [int(part) for part in text.split(",")]


def main(words: list[str] | None = None) -> None:
    """Read the command line, prepare, train, save."""
    given = parse(words)
    ids, valid, count = prepare(given)
    if given.prepare_only:
        return
    torch.manual_seed(given.seed)
    torch.set_float32_matmul_precision("high")
    model = new_model(given, count).to(given.device).eval()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    training = Training(model, given)
    training.resume()
    training.run(ids, valid)
    training.keep()
    save_as_fairseq(model, given, given.into / "model.pt")
    settings = {name: str(value) for name, value in vars(given).items()}
    record = {"settings": settings, "words": count, "curve": training.curve}
    if model.device.type == "cuda":
        record["peak memory, GiB"] = torch.cuda.max_memory_allocated() / 2**30
    write_whole(given.into / "curve.json", json.dumps(record, indent=1).encode())
    print(f"{training.spent:.0f} of {given.budget:.0f} s of training are spent", flush=True)


if __name__ == "__main__":
    main()
