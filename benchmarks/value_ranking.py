"""Ranking values over the vocabulary beside the matrix product alone, in turn, on the CPU.

    python -m benchmarks.value_ranking [--vocabulary 49152] [--width 576] [--values 3000]

Two ways from values to both ends of their rankings: that of a scan's end, without the cache, and
the one before it (two top-k, two searches for the best, two logsumexp, each over all scores); and
the ranks of 51 wanted tokens in each, as the analysis of values needs them. The product is the one
inside all: float32, in the same chunks. Random numbers.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.curve import quartiles
from ffmem.analyses.inputs.value_rankings import target_ranks
from ffmem.memories.projection import CHUNK_BYTES, in_chunks
from ffmem.memories.value_vectors import value_ends, value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import wrap

ENDS = 20
WANTED = 51


def one_layer(vocabulary: int, width: int, values: int) -> LanguageModel:
    """A random model with one gated layer."""
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=values, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    return wrap(LlamaForCausalLM(config).eval())


@torch.inference_mode()
def product(model: LanguageModel) -> None:
    """The scores of all values, and nothing else."""
    values, embedding = value_vectors(model.layers[0]), model.head.embedding
    for rows in values.split(max(1, CHUNK_BYTES // (4 * model.vocab_size))):
        rows @ embedding.T


@torch.inference_mode()
def earlier_way(model: LanguageModel) -> Tensor:
    """Both ends by searches through all scores, one after the other."""
    found = []
    for _, scores in in_chunks(model, value_vectors(model.layers[0]), "piece"):
        opposite = -scores
        high, low = scores.topk(ENDS), opposite.topk(ENDS)
        scores.argmax(dim=1), opposite.argmax(dim=1)
        scores.logsumexp(dim=1), opposite.logsumexp(dim=1)
        found.append(torch.cat([high.values, -low.values], dim=1))
    return torch.cat(found)


def own_way(model: LanguageModel) -> Tensor:
    """Both ends as the end of a scan finds them."""
    ends = value_ends(model, model.layers[0], ENDS)
    return torch.cat([ends.promoted_logits, ends.suppressed_logits], dim=1)


@torch.inference_mode()
def ranks_of_tokens(model: LanguageModel) -> None:
    """The ranks of some tokens in every ranking."""
    draw = torch.Generator().manual_seed(0)
    for _, scores in in_chunks(model, value_vectors(model.layers[0]), "piece"):
        tokens = torch.randint(0, model.vocab_size, (len(scores), WANTED), generator=draw)
        target_ranks(scores, tokens)


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Print both ways over the product, with quartiles over some rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=49_152)
    parser.add_argument("--width", type=int, default=576)
    parser.add_argument("--values", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = one_layer(options.vocabulary, options.width, options.values)
    assert torch.equal(own_way(model), earlier_way(model))  # the same scores, to the bit
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ways: dict[str, Callable[[LanguageModel], object]] = {
        "both ends": own_way,
        "both ends, the way before": earlier_way,
        f"ranks of {WANTED} tokens": ranks_of_tokens,
    }
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    alone = []
    for _ in range(options.rounds):
        alone.append(seconds(lambda: product(model)))
        for name, way in ways.items():
            ratios[name].append(seconds(lambda way=way: way(model)) / alone[-1])  # type: ignore[misc]
    low, middle, high = quartiles(alone)
    print(f"the product alone: {middle:.2f} s (quartiles {low:.2f} to {high:.2f})")
    for name, found in ratios.items():
        low, middle, high = quartiles(found)
        print(f"{name}: {middle:.2f} of the product (quartiles {low:.2f} to {high:.2f})")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"memory grew by {grown / 1024:.0f} MiB over the rounds")


if __name__ == "__main__":
    main()
