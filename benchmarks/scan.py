"""How much a scan costs beyond a bare forward pass, on the same batches in one run.

    python -m benchmarks.scan MODEL CORPUS [--sentences N] [--rounds R] [--device cuda]

Both sides read the same batches in turn: a bare pass of the base model under inference mode, and
the scan's pass. The state is warmed up first on other sentences, because the first sentences all
enter; the warm-up's own ratio is printed apart. Medians over rounds, with the quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from ffmem import demo
from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.scanner import Scanner
from ffmem.scan.settings import ScanSettings


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=2000, help="sentences timed")
    parser.add_argument("--warmup", type=int, default=2000, help="sentences read before")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, help="CPU threads")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = load(options.model, device=options.device, dtype=options.dtype)
    source = first_sentences(model, options.corpus)
    warm = list(all_batches(model, source, options.warmup, options.budget))
    timed = list(all_batches(model, source, options.sentences, options.budget))
    compare(model, warm, timed, ScanSettings(top=options.top, signed=model.gated), options.rounds)
    padded(model, timed, options.rounds)


def first_sentences(model: LanguageModel, corpus: str) -> Iterator[Sentences]:
    """The corpus's shards, tokenised."""
    settings = SentenceSettings(max_tokens=min(512, model.longest - 1))
    for shard in shards(documents(Source(demo.corpus(corpus)))):
        yield tokenise(shard, model.tokenizer, settings)


def all_batches(
    model: LanguageModel, source: Iterator[Sentences], count: int, budget: int
) -> Iterator[Batch]:
    """Batches of the next `count` sentences; each call takes other shards."""
    while count > 0:
        sentences = next(source).first(count)
        count -= len(sentences)
        yield from batches(sentences, model.bos, model.bos or 0, budget)


@torch.inference_mode()
def bare(model: LanguageModel, batch: Batch) -> None:
    """The base model's own forward pass and nothing else."""
    model.model.base_model(input_ids=batch.tokens.to(model.device), use_cache=False)


def seconds(work: Callable[[Batch], None], some: list[Batch], device: torch.device) -> float:
    """How long one side takes over some batches."""
    wait(device)
    began = time.perf_counter()
    for batch in some:
        work(batch)
    wait(device)
    return time.perf_counter() - began


def wait(device: torch.device) -> None:
    """Let a GPU finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compare(
    model: LanguageModel,
    warm: list[Batch],
    timed: list[Batch],
    settings: ScanSettings,
    rounds: int,
) -> None:
    """Scan against bare pass, batch by batch in turn, so that both meet the same noise."""
    tokens = sum(int(batch.lengths.sum()) for batch in timed)
    seconds(lambda batch: bare(model, batch), warm[:2], model.device)
    with Scanner(model, settings) as scanner:
        one, other = in_turn(model, scanner, warm, 0)
    print(
        f"from an empty state: scan / bare = {other / one:.3f} over {len(warm)} batches, one round"
    )
    ratios, speeds = [], []
    for round_number in range(rounds):
        with Scanner(model, settings) as scanner:
            for batch in warm:
                scanner.read(batch)
            wait(model.device)
            one, other = in_turn(model, scanner, timed, round_number)
        ratios.append(other / one)
        speeds.append((tokens / one, tokens / other))
    low, middle, high = quartiles(ratios)
    print(
        f"scan / bare = {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {rounds} rounds, "
        f"{len(timed)} batches, {tokens:,} tokens)"
    )
    print(
        f"bare {statistics.median(s[0] for s in speeds):,.0f} tokens/s, "
        f"scan {statistics.median(s[1] for s in speeds):,.0f} tokens/s"
    )


def in_turn(
    model: LanguageModel, scanner: Scanner, timed: list[Batch], start: int
) -> tuple[float, float]:
    """Total seconds of the bare side and of the scan over the same batches, a group at a time."""
    bare_seconds = scan_seconds = 0.0
    size = 1 if model.device.type == "cpu" else 8
    groups = [timed[i : i + size] for i in range(0, len(timed), size)]
    for number, group in enumerate(groups):
        sides = [("bare", lambda b: bare(model, b)), ("scan", scanner.read)]
        for name, work in sides if (number + start) % 2 else reversed(sides):
            with_hooks_off = name == "bare"
            if with_hooks_off:
                scanner.__exit__(None, None, None)
            took = seconds(work, group, model.device)
            if with_hooks_off:
                bare_seconds += took
                scanner.__enter__()
            else:
                scan_seconds += took
    return bare_seconds, scan_seconds


def quartiles(numbers: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(numbers) < 2:
        return numbers[0], numbers[0], numbers[0]
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high


def padded(model: LanguageModel, timed: list[Batch], rounds: int) -> None:
    """The scan's batches against the same sentences in corpus order, 32 a batch, padded."""
    rows = sorted(
        (int(number), batch.tokens[row, : int(length) + batch.bos])
        for batch in timed
        for row, (number, length) in enumerate(zip(batch.sentences, batch.lengths, strict=True))
    )
    groups = [[tokens for _, tokens in rows[i : i + 32]] for i in range(0, len(rows), 32)]
    plain = [
        torch.nn.utils.rnn.pad_sequence(group, batch_first=True, padding_value=model.bos or 0)
        for group in groups
    ]
    ratios = []
    for _ in range(max(1, rounds // 2)):
        with Scanner(model, ScanSettings(signed=model.gated)) as scanner:
            ours = seconds(scanner.read, timed, model.device)
        wait(model.device)
        began = time.perf_counter()
        with torch.inference_mode():
            for tokens in plain:
                model.model.base_model(input_ids=tokens.to(model.device), use_cache=False)
        wait(model.device)
        ratios.append(ours / (time.perf_counter() - began))
    low, middle, high = quartiles(ratios)
    print(
        f"whole scan, warm-up included / bare pass in corpus order padded by 32 = "
        f"{middle:.3f} ({low:.3f} to {high:.3f})"
    )


if __name__ == "__main__":
    main()
