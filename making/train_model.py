"""Train an OPT language model of any size on any text, one paragraph a line.

    python -m making.train_model out/text/train.txt out/text/valid.txt \
        --tokenizer out/tokenizer --into out/model --seconds 360

The shape is that of the paper's model: pre-norm, ReLU, tied embeddings and no final LayerNorm;
`--layers 16 --width 1024 --memories 4096` is its size. Training reads blocks that begin at `</s>`;
`</s>` stands before every paragraph and before a random `--share` of the other sentences (drawn
again in every epoch). The learning rate rises, then falls along a cosine that ends with the budget:
`--seconds` of training or `--steps`, whichever comes first. The best weights on validation are
kept.

Leaves a Hugging Face folder (bfloat16 weights, config, tokenizer) and `curve.json` in it: settings,
losses, perplexities of the model and of the unigram and trigram baselines.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import OPTConfig, OPTForCausalLM

from making.baselines import MARK, baselines
from making.evaluate import perplexity
from making.files import lines_of
from making.saving import save_model
from making.token_data import Tokens, block_starts, encode, paragraphs, single_sentences, stream


def new_model(given: argparse.Namespace, vocabulary: int, mark: int, padding: int) -> Any:
    """An untrained model of the asked size."""
    config = OPTConfig(
        vocab_size=vocabulary,
        hidden_size=given.width,
        word_embed_proj_dim=given.width,
        num_hidden_layers=given.layers,
        ffn_dim=given.memories,
        num_attention_heads=given.heads,
        max_position_embeddings=given.block,
        activation_function="relu",
        do_layer_norm_before=True,
        _remove_final_layer_norm=True,
        dropout=0.0,
        attention_dropout=0.0,
        tie_word_embeddings=True,
        init_std=0.55 / math.sqrt(given.width),  # 0.02 at width 768
        bos_token_id=mark,
        eos_token_id=mark,
        pad_token_id=padding,
    )
    model = OPTForCausalLM(config)
    with torch.no_grad():  # what is added to the residual starts small, as there are many layers
        for layer in model.model.decoder.layers:
            for matrix in (layer.self_attn.out_proj.weight, layer.fc2.weight):
                matrix /= math.sqrt(2 * given.layers)
    return model


def training_logits(model: Any, inputs: Tensor) -> Tensor:
    """The model's logits without padding masks or caches: one graph for the compiler."""
    decoder = model.model.decoder
    places = torch.arange(inputs.shape[1], device=inputs.device)[None]
    residual = decoder.embed_tokens(inputs) + decoder.embed_positions(None, 0, position_ids=places)
    for layer in decoder.layers:
        residual = layer(residual, attention_mask=None)
    return model.lm_head(residual)


def training_loss(model: Any, blocks: Tensor) -> Tensor:
    """Mean loss of the next token in blocks [batch, block + 1]."""
    with torch.autocast(blocks.device.type, torch.bfloat16, enabled=blocks.is_cuda):
        logits = training_logits(model, blocks[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), blocks[:, 1:].flatten())


def training_batches(tokens: Tokens, mark: int, given: argparse.Namespace) -> Iterator[Tensor]:
    """Batches of blocks [batch, block + 1] without end, another order in every epoch."""
    generator = torch.Generator(tokens.ids.device).manual_seed(given.seed)
    offsets = torch.arange(given.block + 1, device=tokens.ids.device)
    size = max(1, given.batch_tokens // given.block)
    for epoch in range(10**6):
        row = stream(tokens, given.share, generator)
        starts = block_starts(row, mark, given.block)
        print(f"epoch {epoch}: {len(starts):,} blocks of {given.block} tokens", flush=True)
        if len(starts) < size:
            raise SystemExit(f"only {len(starts)} blocks; lower --batch-tokens or give more text")
        order = starts[torch.randperm(len(starts), generator=generator, device=starts.device)]
        for batch in order[: len(order) // size * size].view(-1, size):
            yield row[batch[:, None] + offsets].long()


def optimizer_of(model: Any, given: argparse.Namespace) -> torch.optim.Optimizer:
    """AdamW; matrices decay, biases and norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": given.decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(groups, lr=given.rate, betas=(0.9, 0.95), fused=fused)


def rate_at(progress: float, warm_up: float) -> float:
    """The share of the full learning rate when `progress` of the budget is spent."""
    if progress < warm_up:
        return max(progress / warm_up, 0.001)
    along = min((progress - warm_up) / (1 - warm_up), 1.0)
    return 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * along))


def compiled(step: Callable[[Any, Tensor], Tensor], wanted: bool) -> Callable[..., Tensor]:
    """The loss, compiled where that works."""
    if not wanted:
        return step
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
    torch.set_float32_matmul_precision("high")
    return torch.compile(step)


class Watch:
    """Measures validation at even shares of the budget and keeps the best weights."""

    def __init__(self, model: Any, pieces: list[Tensor], looks: int) -> None:
        self.model, self.pieces, self.looks = model, pieces, looks
        self.curve: list[dict[str, Any]] = []
        self.losses: list[Tensor] = []  # of the training steps since the last look
        self.best = math.inf
        self.weights: dict[str, Tensor] = {}
        self.begin = time.monotonic()

    def look(self, progress: float, step: int, seen: int) -> None:
        """Measure if it is time to: at the start, `looks` times, at the end."""
        if progress < min(len(self.curve) / self.looks, 1.0):
            return
        now = math.log(perplexity(self.model, self.pieces))
        if now < self.best:
            state = self.model.state_dict().items()
            self.best = now
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in state}
        seconds = time.monotonic() - self.begin
        trained = torch.stack(self.losses).mean().item() if self.losses else None
        self.losses = []
        self.curve.append(
            {
                "step": step,
                "tokens": seen,
                "seconds": round(seconds, 1),
                "training loss": trained,
                "validation loss": now,
            }
        )
        print(f"{self.curve[-1]} {seen / max(seconds, 1e-9):,.0f} tokens/s", flush=True)


def train(model: Any, tokens: Tokens, watch: Watch, given: argparse.Namespace) -> None:
    """Train in place until the budget is spent and end with the best weights."""
    loss_of = compiled(training_loss, given.compile)
    optimizer = optimizer_of(model, given)
    batches = training_batches(tokens, model.config.bos_token_id, given)
    loss_of(model, next(batches)).backward()  # compiles; the clock starts after it
    model.zero_grad()
    watch.begin = time.monotonic()
    step, seen, progress = 0, 0, 0.0
    while progress < 1:
        watch.look(progress, step, seen)
        for group in optimizer.param_groups:
            group["lr"] = given.rate * rate_at(progress, given.warm_up)
        blocks = next(batches)
        loss = loss_of(model, blocks)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        watch.losses.append(loss.detach())
        step += 1
        seen += blocks.shape[0] * (blocks.shape[1] - 1)
        progress = max(step / given.steps, (time.monotonic() - watch.begin) / given.seconds)
    watch.look(1.0, step, seen)
    model.load_state_dict(watch.weights)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("train", type=Path, help="one paragraph a line; may be .xz or .gz")
    parser.add_argument("valid", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--memories", type=int, default=1024, help="per layer")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--block", type=int, default=256, help="tokens per block = positions")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--share", type=float, default=0.5, help="of sentences that get a mark")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--warm-up", type=float, default=0.03, help="share of the budget")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay")
    parser.add_argument(
        "--seconds", type=float, default=360, help="of training, set-up not counted"
    )
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--looks", type=int, default=30, help="times validation is measured")
    parser.add_argument("--watch", type=int, default=2000, help="paragraphs measured each time")
    parser.add_argument("--processes", type=int, default=1, help="that encode the text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def measured(model: Any, train_tokens: Tokens, valid_tokens: Tokens) -> dict[str, float]:
    """Perplexities of the model and of the baselines on all of the validation text."""
    config = model.config
    longest = config.max_position_embeddings
    return {
        "model, paragraphs": perplexity(model, paragraphs(valid_tokens, longest)),
        "model, sentences": perplexity(model, single_sentences(valid_tokens, longest)),
    } | baselines(train_tokens, valid_tokens, config.bos_token_id, config.vocab_size)


def main() -> None:
    """Read the command line, train, measure and save."""
    given = parse()
    torch.manual_seed(given.seed)
    tokenizer: Any = Tokenizer.from_file(str(given.tokenizer / "tokenizer.json"))
    mark, padding = tokenizer.token_to_id(MARK), tokenizer.token_to_id("<pad>")
    texts = [
        encode(lines_of(path), tokenizer, mark, given.processes)
        for path in (given.train, given.valid)
    ]
    train_tokens, valid_tokens = (text.to(given.device) for text in texts)
    print(f"{len(train_tokens.ids):,} and {len(valid_tokens.ids):,} tokens with marks", flush=True)
    model = new_model(given, tokenizer.get_vocab_size(), mark, padding).to(given.device).eval()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters", flush=True)
    alone = paragraphs(valid_tokens, given.block)
    watch = Watch(model, alone[:: max(1, len(alone) // given.watch)], given.looks)
    train(model, train_tokens, watch, given)
    settings = {name: value for name, value in vars(given).items() if not isinstance(value, Path)}
    record = {"settings": settings, "parameters": parameters, "curve": watch.curve}
    save_model(model, given.tokenizer, given.into, record)  # safe before the last measurements
    record["perplexity"] = measured(model, train_tokens, valid_tokens)
    save_model(model, given.tokenizer, given.into, record)
    print(json.dumps(record["perplexity"], indent=1), flush=True)


if __name__ == "__main__":
    main()
