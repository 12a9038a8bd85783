"""How much a scan of a mixture of experts costs beyond a bare forward pass.

    python -m benchmarks.moe                  # a toy of about the demo's cost, float32, CPU
    python -m benchmarks.moe --device cuda    # OLMoE's shape, random weights, bfloat16

A random OLMoE reads random sentences (Zipf tokens, batches of like length). After `--warmup`
sentences, which are scanned alone, both sides read the same batches in turn: a bare pass of the
base model with the experts function that it came with, and the scan's pass. The ratio hardly
depends on the number of layers, so that fewer (`--layers`) serve where time is short.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

from benchmarks.scan import CLOCK, bare, in_turn, quartiles, seconds
from ffmem.corpus.batches import Batch
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import wrap
from ffmem.scan.scanner import Scanner
from ffmem.scan.settings import ScanSettings

# layers, width, experts, chosen per place, memories per expert, tokens per batch
SHAPES = {"cpu": (16, 256, 8, 2, 320, 4096), "cuda": (16, 2048, 64, 8, 1024, 65_536)}


def main() -> None:
    """Measure and print."""
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.clock == "cpu":
        CLOCK[0] = time.process_time
    shape = SHAPES[torch.device(options.device).type]
    shape = (options.layers or shape[0], *shape[1:])
    model = random_mixture(shape, options)
    budget = options.budget or shape[-1]
    settings = ScanSettings(top=options.top, signed=True)
    source = sentences(budget, options.vocabulary)
    print(f"{shape}, {model.memories:,} memories, {model.dtype}, t = {options.top}", flush=True)
    with Scanner(model, settings) as scanner:
        took = seconds(lambda: read(scanner, source, options.warmup), model.device)
        print(f"{options.warmup:,} sentences before, {took:.1f} s", flush=True)
        compare(model, scanner, take(source, options.sentences), options.group)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--warmup", type=int, default=20_000, help="sentences scanned before")
    parser.add_argument("--sentences", type=int, default=3_000, help="that both sides read")
    parser.add_argument("--layers", type=int, help="instead of 16")
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--budget", type=int, help="tokens per batch")
    parser.add_argument("--group", type=int, default=1, help="batches that a side reads at a time")
    parser.add_argument("--vocabulary", type=int, default=50_304)
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    return parser.parse_args()


def random_mixture(shape: tuple[int, ...], options: argparse.Namespace) -> LanguageModel:
    """An untrained OLMoE, built where it runs."""
    layers, width, experts, chosen, size, _ = shape
    config = OlmoeConfig(
        vocab_size=options.vocabulary,
        hidden_size=width,
        intermediate_size=size,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 128),
        num_key_value_heads=max(1, width // 128),
        num_experts=experts,
        num_experts_per_tok=chosen,
        max_position_embeddings=512,
        pad_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if options.device == "cpu" else torch.bfloat16)
    try:
        with torch.device(options.device):
            model = OlmoeForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return wrap(model.eval(), name="random OLMoE")


def sentences(budget: int, vocabulary: int) -> Iterator[Batch]:
    """Batches of random sentences of like length without end, `budget` tokens each at most."""
    generator = torch.Generator().manual_seed(1)
    numbered = 0
    weights = 1.0 / torch.arange(10, vocabulary + 10)
    while True:
        # A common length, one token more or less.
        common = float(torch.randn((), generator=generator) * 0.45 + 3.1)
        middle = min(max(int(torch.tensor(common).exp()), 3), 120)
        rows = max(1, budget // (middle + 2))
        lengths = torch.randint(middle - 1, middle + 2, (rows,), generator=generator).sort()[0]
        ids = torch.multinomial(
            weights, rows * (middle + 2), replacement=True, generator=generator
        ).view(rows, -1)
        ids[:, 0] = 2
        order = torch.randperm(rows, generator=generator) + numbered
        numbered += rows
        yield Batch(ids, lengths, order, 1)


def take(source: Iterator[Batch], count: int) -> list[Batch]:
    """The batches of the next `count` sentences, or a few more."""
    found: list[Batch] = []
    while sum(len(batch.lengths) for batch in found) < count:
        found.append(next(source))
    return found


def read(scanner: Scanner, source: Iterator[Batch], count: int) -> None:
    """Scan the next `count` sentences, or a few more."""
    while count > 0:
        batch = next(source)
        scanner.read(batch)
        count -= len(batch.lengths)


def compare(model: LanguageModel, scanner: Scanner, ready: list[Batch], group: int) -> None:
    """Both sides over the same batches, in turn."""
    for batch in ready[:2]:  # not timed: first use of everything
        bare(model, batch.tokens)
    curve = in_turn(model, scanner, ready, 0, group)
    ratios = [scan / plain for scan, plain in zip(curve.scan, curve.bare, strict=True)]
    low, middle, high = quartiles(ratios)
    tokens = sum(curve.tokens)
    print(
        f"{sum(curve.sentences):,} sentences: scan / bare = {curve.ratio():.3f} (groups: median "
        f"{middle:.3f}, quartiles {low:.3f} to {high:.3f}); bare "
        f"{tokens / sum(curve.bare):,.0f} tokens/s, scan {tokens / sum(curve.scan):,.0f}"
    )


if __name__ == "__main__":
    main()
