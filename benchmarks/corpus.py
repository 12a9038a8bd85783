"""Measures the way from text to batches: sentences and tokens per second, and padding.

    python -m benchmarks.corpus TEXT MODEL [SHARDS]

TEXT is a corpus, MODEL a folder or name with a fast tokenizer; 6 shards by default.
"""

import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from transformers import AutoTokenizer

from ffmem.corpus.batches import batches
from ffmem.corpus.sentences import Sentences, SentenceSettings, sentence_texts, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents

BUDGETS = (16_384, 65_536)
Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What the work returns, and its seconds."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def cut_when_full(sentences: Sentences, bos: int, budget: int) -> int:
    """Tokens with padding if sorted sentences simply fill one batch after the other."""
    widths = sorted(sentences.lengths + bos, reverse=True)
    first = total = 0
    while first < len(widths):
        rows = min(max(1, budget // int(widths[first])), len(widths) - first)
        total += rows * int(widths[first])
        first += rows
    return total


def show_padding(found: list[Sentences], bos: int | None, budget: int) -> None:
    """Print one row of the padding table."""
    leading = 0 if bos is None else 1
    made = [batch for sentences in found for batch in batches(sentences, bos, 0, budget)]
    real = sum(int(sentences.lengths.sum()) + leading * len(sentences) for sentences in found)
    padded = sum(batch.tokens.numel() for batch in made)
    simple = sum(cut_when_full(sentences, leading, budget) for sentences in found)
    print(
        f"| {budget:,} | {1 - real / padded:.1%} | {len(made)} | {padded // len(made):,} "
        f"| {1 - real / simple:.1%} |"
    )


def main(arguments: list[str]) -> None:
    """Print the speed of each step and the padding of each budget."""
    tokenizer: Any = AutoTokenizer.from_pretrained(arguments[1])
    count = int(arguments[2]) if len(arguments) > 2 else 6
    settings, bos = SentenceSettings(), tokenizer.bos_token_id
    read, reading = timed(lambda: list(islice(shards(documents(Source(arguments[0]))), count)))
    _, splitting = timed(lambda: [sentence_texts(shard.documents, settings) for shard in read])
    found, whole = timed(lambda: [tokenise(shard, tokenizer, settings) for shard in read])
    _, batching = timed(lambda: [list(batches(one, bos, 0, BUDGETS[0])) for one in found])
    sentences, tokens = sum(map(len, found)), sum(len(one.tokens) for one in found)
    print(f"{len(read)} shards, {sentences:,} sentences, {tokens:,} tokens\n")
    print("| step | sentences/s | tokens/s |\n|---|---|---|")
    steps = {"read, cut into shards": reading, "split": splitting, "split and tokenise": whole}
    for name, seconds in {**steps, f"batches, budget {BUDGETS[0]:,}": batching}.items():
        print(f"| {name} | {sentences / seconds:,.0f} | {tokens / seconds:,.0f} |")
    print("\n| budget | padding | batches | tokens per batch | padding if cut when full |")
    print("|---|---|---|---|---|")
    for budget in BUDGETS:
        show_padding(found, bos, budget)


if __name__ == "__main__":
    main(sys.argv[1:])
