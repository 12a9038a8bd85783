"""How much a scan costs beyond a bare forward pass, on the same batches in one run.

    python -m benchmarks.scan MODEL CORPUS [--sentences N] [--rounds R] [--device cuda]

Both sides read the same batches in turn: a bare pass of the base model under inference mode, and
the scan's pass. The first sentences nearly all enter, so the ratio is printed by how many have been
read, and for the sentences after `--warmup` alone. Medians over rounds, with the quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ffmem import demo
from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.scanner import Scanner, ScanState, send_to_device
from ffmem.scan.settings import ScanSettings

CLOCK = [time.perf_counter]  # processor time instead counts all threads, and no other process
EDGES = (0, 1_000, 3_000, 10_000, 30_000, 100_000, 200_000, 400_000, 800_000, 1_600_000, 10**12)


@dataclass
class Curve:
    """Seconds of the bare side and of the scan, and the sentences read, group by group."""

    bare: list[float] = field(default_factory=list)
    scan: list[float] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def ratio(self, first: int = 0, last: int | None = None) -> float:
        """Scan over bare, of the groups from `first` to `last`."""
        return sum(self.scan[first:last]) / sum(self.bare[first:last])

    def group_at(self, sentence: int) -> int:
        """The group that reads the sentence of that number, counted from 0."""
        read = 0
        for group, count in enumerate(self.sentences):
            read += count
            if read > sentence:
                return group
        return len(self.sentences)

    def show(self) -> None:
        """One line a stretch of the scan, and the second half of it with its spread."""
        for start, stop in zip(EDGES, EDGES[1:], strict=False):
            first, last = self.group_at(start), self.group_at(stop)
            if first < last:
                end = min(stop, sum(self.sentences))
                print(f"  sentences {start:>9,} to {end:>9,}: {self.ratio(first, last):.3f}")
        half = len(self.bare) // 2
        pairs = zip(self.scan[half:], self.bare[half:], strict=True)
        low, middle, high = quartiles([scan / bare for scan, bare in pairs])
        print(f"  from the first sentence on: {self.ratio():.3f}")
        print(
            f"  second half: {self.ratio(half):.3f} (groups: median {middle:.3f}, "
            f"quartiles {low:.3f} to {high:.3f})"
        )


def quartiles(numbers: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(numbers) < 2:
        return numbers[0], numbers[0], numbers[0]
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=2000, help="sentences after the warm-up")
    parser.add_argument("--warmup", type=int, default=2000, help="sentences read before")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--state", type=Path, help="start here; made from the warm-up if absent")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine others use too"
    )
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.clock == "cpu":
        CLOCK[0] = time.process_time
    model = load(options.model, device=options.device, dtype=options.dtype)
    source = first_sentences(model, options.corpus)
    warm = list(all_batches(model, source, options.warmup, options.budget))
    timed = some_batches(model, next(source), options.sentences, options.budget)
    settings = ScanSettings(top=options.top, signed=model.gated)
    state = None if options.state is None else state_after(model, warm, settings, options.state)
    print(f"{torch.get_num_threads()} threads, {model.dtype}, t = {options.top}")
    compare(model, [] if state else warm, timed, settings, options.rounds, state)


def state_after(
    model: LanguageModel, warm: list[Batch], settings: ScanSettings, path: Path
) -> ScanState:
    """What a scan keeps after the warm-up, from the file or into it."""
    if not path.exists():
        with Scanner(model, settings) as scanner:
            for batch in warm:
                scanner.read(batch)
            torch.save(scanner.state(), path)
    found: ScanState = torch.load(path, weights_only=False)
    print(f"after {next(iter(found.values())).tallies.prefixes:,} prefixes")
    return found


def first_sentences(model: LanguageModel, corpus: str) -> Iterator[Sentences]:
    """The corpus's shards, tokenised."""
    settings = SentenceSettings(max_tokens=min(512, model.context_length - 1))
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


def some_batches(
    model: LanguageModel, sentences: Sentences, count: int, budget: int
) -> list[Batch]:
    """Batches as full as a whole shard's are, of all lengths, with about `count` sentences."""
    whole = list(batches(sentences, model.bos, model.bos or 0, budget))
    return whole[:: max(1, len(sentences) // count)]


@torch.inference_mode()
def bare(model: LanguageModel, tokens: Tensor) -> None:
    """The base model's own forward pass and nothing else."""
    model.model.base_model(input_ids=send_to_device(tokens, model.device), use_cache=False)


def wait(device: torch.device) -> None:
    """Let a GPU finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long some work takes."""
    wait(device)
    began = CLOCK[0]()
    work()
    wait(device)
    return CLOCK[0]() - began


def in_turn(
    model: LanguageModel, scanner: Scanner, ready: list[Batch], start: int, size: int | None = None
) -> Curve:
    """Bare pass and scan over the same batches, a group of them at a time, sides taking turns."""
    size = size or (1 if model.device.type == "cpu" else 16)
    curve = Curve()
    for number, first in enumerate(range(0, len(ready), size), start):
        group = ready[first : first + size]

        def scan(group: list[Batch] = group) -> None:
            for batch in group:
                scanner.read(batch)

        def plain(group: list[Batch] = group) -> None:
            for batch in group:
                bare(model, batch.tokens)

        if number % 2:
            curve.scan.append(seconds(scan, model.device))
        scanner.__exit__(None, None, None)
        curve.bare.append(seconds(plain, model.device))
        scanner.__enter__()
        if not number % 2:
            curve.scan.append(seconds(scan, model.device))
        curve.sentences.append(sum(len(batch.lengths) for batch in group))
        curve.tokens.append(sum(int(batch.lengths.sum()) for batch in group))
    return curve


def compare(
    model: LanguageModel,
    warm: list[Batch],
    timed: list[Batch],
    settings: ScanSettings,
    rounds: int,
    state: ScanState | None = None,
) -> None:
    """Scan against bare pass, batch by batch in turn, so that both meet the same noise."""
    with Scanner(model, settings) as throw_away:  # not timed: first use of everything
        for batch in (warm + timed)[-2:]:
            throw_away.read(batch)
            bare(model, batch.tokens)
    curves = []
    for number in range(rounds):
        with Scanner(model, settings) as scanner:
            if state is not None:
                scanner.resume(state)
            curves.append(in_turn(model, scanner, warm + timed, number))
    first = curves[0]
    edge = first.group_at(sum(len(batch.lengths) for batch in warm))
    parts = {"from the first sentence": (0, edge), "after them": (edge, None)}
    for name, (begin, end) in parts.items():
        if not first.bare[begin:end]:
            continue
        low, middle, high = quartiles([curve.ratio(begin, end) for curve in curves])
        count, tokens = sum(first.sentences[begin:end]), sum(first.tokens[begin:end])
        bare_speed, scan_speed = (
            tokens / quartiles([sum(side[begin:end]) for side in sides])[1]
            for sides in ([c.bare for c in curves], [c.scan for c in curves])
        )
        print(
            f"{name}, {count:,} sentences: scan / bare = {middle:.3f} "
            f"(quartiles {low:.3f} to {high:.3f}, {rounds} rounds); "
            f"bare {bare_speed:,.0f} tokens/s, scan {scan_speed:,.0f}"
        )
    curves[-1].show()


if __name__ == "__main__":
    main()
