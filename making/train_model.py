"""Train an OPT language model of any size on any text, one paragraph a line.

    python -m making.train_model out/text/train.txt out/text/valid.txt \
        --tokenizer out/tokenizer --into out/model --seconds 360

The shape is that of the paper's model: pre-norm, ReLU, tied embeddings and no final LayerNorm;
`--layers 16 --width 1024 --memories 4096` is its size. Training reads blocks that begin at `</s>`;
`</s>` stands before every paragraph and before a random `--share` of the other sentences (drawn again
in every epoch). The learning rate rises, then falls along a cosine that ends with the budget: `--seconds`
of training or `--steps`, whichever comes first. The best weights on validation are kept.

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
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
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
    return F.cross_entropy(logits.float().flatten(0, 1), blocks[:, 1:].flatten())


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


def train(model: Any, tokens: Tokens, watch: list[Tensor], given: argparse.Namespace) -> list[Any]:
    """Train in place, end with the best weights, return the curve."""
    loss_of = compiled(training_loss, given.compile)
    optimizer = optimizer_of(model, given)
    curve: list[dict[str, float]] = []
    best, best_weights = math.inf, {}
    batches = training_batches(tokens, model.config.bos_token_id, given)
    first = next(batches)
    loss_of(model, first).backward()  # compiles; the clock starts after it
    model.zero_grad()
    begin, next_look, step, progress, seen, losses = time.monotonic(), 0.0, 0, 0.0, 0, []
    while progress < 1:
        progress = max(step / given.steps, (time.monotonic() - begin) / given.seconds)
        if progress >= next_look or progress >= 1:
            next_look = progress + 1 / given.looks
            now = perplexity(model, watch)
            trained = torch.stack(losses).mean().item() if losses else math.nan
            losses = []
            if now < best:
                best = now
                best_weights = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
            seconds = time.monotonic() - begin
            curve.append(
                {
                    "step": step,
                    "seconds": round(seconds, 1),
                    "tokens": seen,
                    "training loss": trained,
                    "validation loss": math.log(now),
                }
            )
            rate = seen / max(seconds, 1e-9)
            print(f"{curve[-1]} {rate:,.0f} tokens/s", flush=True)
            if progress >= 1:
                break
        for group in optimizer.param_groups:
            group["lr"] = given.rate * rate_at(progress, given.warm_up)
        blocks = next(batches)
        loss = loss_of(model, blocks)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        step += 1
        seen += blocks.shape[0] * (blocks.shape[1] - 1)
    model.load_state_dict(best_weights)
    return curve


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
    parser.add_argument("--seconds", type=float, default=360, help="of training, set-up not counted")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--looks", type=int, default=30, help="times validation is measured")
    parser.add_argument("--watch", type=int, default=2000, help="paragraphs measured each time")
    parser.add_argument("--processes", type=int, default=1, help="that encode the text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    """Read the command line, train, measure and save."""
    given = parse()
    torch.manual_seed(given.seed)
    tokenizer = Tokenizer.from_file(str(given.tokenizer / "tokenizer.json"))
    mark, padding = tokenizer.token_to_id(MARK), tokenizer.token_to_id("<pad>")
    train_tokens, valid_tokens = (
        encode(lines_of(path), tokenizer, mark, given.processes).to(given.device)
        for path in (given.train, given.valid)
    )
    print(f"{len(train_tokens.ids):,} and {len(valid_tokens.ids):,} tokens with marks", flush=True)
    model = new_model(given, tokenizer.get_vocab_size(), mark, padding).to(given.device).eval()
    alone = paragraphs(valid_tokens, given.block)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters", flush=True)
    curve = train(model, train_tokens, alone[:: max(1, len(alone) // given.watch)], given)
    settings = {name: value for name, value in vars(given).items() if not isinstance(value, Path)}
    record: dict[str, Any] = {"settings": settings, "parameters": parameters, "curve": curve}
    save_model(model, given.tokenizer, given.into, record)  # safe before the last measurements
    record["perplexity"] = {
        "model, paragraphs": perplexity(model, alone),
        "model, sentences": perplexity(model, single_sentences(valid_tokens, given.block)),
    } | baselines(train_tokens, valid_tokens, mark, tokenizer.get_vocab_size())
    save_model(model, given.tokenizer, given.into, record)
    print(json.dumps(record["perplexity"], indent=1), flush=True)


if __name__ == "__main__":
    main()
