"""How long the ranking of values takes beside the plain float32 product that it needs.

    python -m benchmarks.ranking [MODEL] [--values 1536 --width 576 --tokens 49152] [--rounds 9]

The values of a model's first layer, or random ones of a shape, are ranked over all tokens: both
ends and their probabilities, once from torch's own product with a partial sort, and once as ffmem
does it, from blocks of tokens. The sides take turns. Processor times are divided by that of torch's
product alone: medians over rounds, with the quartiles. At the end both rankings are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.scan import quartiles
from ffmem.loops.threads import map_in_threads
from ffmem.memories.projection import (
    CHUNK_BYTES,
    before_embedding,
    strongest,
    sums_of_exponentials,
)
from ffmem.memories.value_vectors import (
    BLOCK_TOKENS,
    BLOCK_VALUES,
    ValueEnds,
    block_ends,
    value_vectors,
)
from ffmem.models.loading import load
from ffmem.models.unembedding import TokenVectors, VocabularyBand

ENDS = 20


def multiply(h: Tensor, rows: Tensor) -> None:
    """All scores by torch's own product, 64 MiB at a time, without a look at them."""
    for part in h.split(CHUNK_BYTES // (4 * len(rows))):
        part @ rows.T


def multiply_blocks(h: Tensor, rows: Tensor) -> None:
    """All scores as a ranking takes them."""
    vectors = TokenVectors((VocabularyBand(rows),))

    @torch.no_grad()
    def scores_of(part: Tensor) -> None:
        for _ in vectors.score_blocks(part, BLOCK_TOKENS):
            pass

    list(map_in_threads(scores_of, h.split(BLOCK_VALUES)))


def rank(h: Tensor, rows: Tensor) -> ValueEnds:
    """Both ends of the ranking of every value, and the probabilities of their first tokens."""
    parts = []
    for part in h.split(CHUNK_BYTES // (4 * len(rows))):
        scores = part @ rows.T
        high, promoted = strongest(scores, ENDS)
        low, suppressed = strongest(scores, ENDS, -1)
        up, down = sums_of_exponentials(scores, high[:, 0], -low[:, 0])
        parts.append(ValueEnds(promoted, high, 1 / up, suppressed, -low, 1 / down))
    return ValueEnds.join(parts)


def rank_blocks(h: Tensor, rows: Tensor) -> ValueEnds:
    """The same as ffmem does it."""
    vectors = TokenVectors((VocabularyBand(rows),))

    @torch.no_grad()
    def rank_some(part: Tensor) -> ValueEnds:
        return block_ends(part, vectors, ENDS)

    return ValueEnds.join(list(map_in_threads(rank_some, h.split(BLOCK_VALUES))))


def seconds(work: Callable[[], object]) -> float:
    """The processor time of some work, all threads together."""
    began = time.process_time()
    work()
    return time.process_time() - began


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="with float32 vectors in one band")
    parser.add_argument("--values", type=int, default=1536)
    parser.add_argument("--width", type=int, default=576)
    parser.add_argument("--tokens", type=int, default=49_152)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    h, rows = random_shape(options.values, options.width, options.tokens)
    if options.model is not None:
        h, rows = first_layer(options.model)
    works: dict[str, Callable[[], object]] = {
        "torch's product": lambda: multiply(h, rows),
        "ffmem's product": lambda: multiply_blocks(h, rows),
        "ranking by torch's product": lambda: rank(h, rows),
        "ranking by ffmem's": lambda: rank_blocks(h, rows),
    }
    rank_blocks(h[:2], rows[:2])  # the loop is compiled
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            took[name].append(seconds(work))
    print(f"{len(h):,} x {h.shape[1]:,} x {len(rows):,}, {torch.get_num_threads()} threads")
    base = took["torch's product"]
    print(f"torch's product: {2 * h.numel() * len(rows) / 1e9 / quartiles(base)[1]:.0f} GFLOP/s")
    for name in list(works)[1:]:
        ratios = [one / other for one, other in zip(took[name], base, strict=True)]
        low, middle, high = quartiles(ratios)
        print(f"{name} / torch's product = {middle:.2f} (quartiles {low:.2f} to {high:.2f})")
    compare(rank(h, rows), rank_blocks(h, rows))


def random_shape(values: int, width: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Values and vectors of tokens whose scores are about 0.5, as in small models."""
    torch.manual_seed(0)
    return torch.randn(values, width) * 0.5 / width**0.5, torch.randn(tokens, width)


def first_layer(name: str) -> tuple[Tensor, Tensor]:
    """The values of a model's first layer before its embedding, and the vectors of its tokens."""
    model = load(name)
    (band,) = model.head.vectors("output").first(model.vocab_size).bands
    return before_embedding(model, value_vectors(model.layers[0])), band.rows


def compare(one: ValueEnds, other: ValueEnds) -> None:
    """Print how two rankings of the same values differ."""
    for name in ("promoted", "suppressed"):
        differ = int((getattr(one, name) != getattr(other, name)).sum())
        print(f"{name}: {differ:,} of {one.promoted.numel():,} places have another token")
    for name in ("promoted_logits", "probability", "suppressed_probability"):
        most = (getattr(one, name) - getattr(other, name)).abs().max()
        print(f"{name}: differs by {most:.1e} at most")


if __name__ == "__main__":
    main()
