"""Two workers of one thread against one worker of one thread, on Ray, in one run.

    python -m benchmarks.ray_scan [MODEL] [CORPUS] [--shards 24] [--shard-bytes 32768] [--rounds 3]

Throughput is taken while all workers read: from when every worker has answered until the last
shards (two per worker) have been given out. What it is from start to end, with the start of Ray and
of the models, the merge and the writing of the store, is printed beside it. The stores of both
must be the same to the byte.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import statistics
import tempfile
import time
from pathlib import Path

from ffmem import demo
from ffmem.corpus import shards
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.checkpoint import ScanProgress
from ffmem.execution.executor import Cluster
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan_on_ray
from ffmem.execution.single_process import ScanWatch
from ffmem.execution.worker import ModelChoice
from ffmem.scan.settings import ScanSettings


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("corpus", nargs="?", default="demo")
    parser.add_argument("--shards", type=int, default=24, help="of the corpus that are read")
    parser.add_argument("--shard-bytes", type=int, default=1 << 15)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shards.SHARD_BYTES = options.shard_bytes  # small, so that a short run has many of them
    with tempfile.TemporaryDirectory() as folder:
        text = first_text(options.corpus, options.shards * options.shard_bytes, Path(folder))
        ratios = []
        for number in range(options.rounds):
            sides = [1, 2] if number % 2 else [2, 1]
            outs = {workers: Path(folder) / f"{number}-{workers}" for workers in sides}
            speeds = {n: speed(options.model, text, n, outs[n]) for n in sides}
            ratios.append(speeds[2] / speeds[1])
            print(f"round {number}: two workers / one worker = {ratios[-1]:.3f}")
            compare(outs[1], outs[2])
    print(
        f"two workers / one worker = {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}, {options.rounds} rounds); stores equal"
    )


def first_text(corpus: str, size: int, folder: Path) -> Path:
    """The beginning of a corpus as a file."""
    from ffmem.corpus.sources import documents

    path, left = folder / "text.txt", size
    with path.open("w", encoding="utf-8") as file:
        for document in documents(Source(demo.corpus(corpus))):
            left -= file.write(" ".join(document.split()) + "\n")
            if left <= 0:
                break
    return path


class Clock:
    """Told of every shard; knows how fast they came once all workers were at it."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._seen: list[tuple[float, int]] = []

    def watch(self, progress: ScanProgress, _share: float | None) -> None:
        """Note when so many tokens had been read."""
        self._seen.append((time.perf_counter(), progress.tokens))

    @property
    def speed(self) -> float:
        """Tokens per second from when each worker has answered until there is no shard to give."""
        began, before = self._seen[self._workers - 1]
        ended, after = self._seen[-2 * self._workers]
        return (after - before) / (ended - began)


def speed(model: str, text: Path, workers: int, out: Path) -> float:
    """Tokens per second of one scan by so many workers of one thread."""
    plan = ScanPlan(Source(str(text)), ScanSettings(), SentenceSettings())
    clock = Clock(workers)
    watch: ScanWatch = clock.watch
    began = time.perf_counter()
    cluster = Cluster("local", workers, 0, 1)
    store = run_scan_on_ray(cluster, ModelChoice(model, device="cpu"), plan, out, watch)
    whole = store.manifest.counts["tokens"] / (time.perf_counter() - began)
    print(f"  workers {workers}: {clock.speed:,.0f} tokens/s reading, {whole:,.0f} start to end")
    return clock.speed


def compare(one: Path, other: Path) -> None:
    """Stop where two stores differ."""
    files = [path.relative_to(one) for path in one.rglob("*.*") if path.name != "manifest.json"]
    _, wrong, missing = filecmp.cmpfiles(one, other, list(map(str, files)), shallow=False)
    if wrong or missing or not files:
        raise SystemExit(f"the stores differ in {wrong + missing}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
