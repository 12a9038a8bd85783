"""How much memory a scan takes above the model's own, by how many sentences it reads.

    python -m benchmarks.memory [--sentences 10000,100000,1000000]

Each count is a process of its own: a tiny model (3 layers of 64 memories) scans that many short
synthetic sentences. Printed are the resident memory before the scan and the most during it. What a
scan may hold is its state, the sentences that points at, and a few shards of text.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings

WORDS = "red sun old cat big hat new sea far sky low fog dry hay wet oak tin cup icy bay".split()  # noqa: SIM905


def resident() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(text: str, sentences: int, out: str) -> None:
    """Scan and print one row."""
    model = load("tiny:opt", device="cpu", dtype="float32")
    plan = ScanPlan(
        Source(text), ScanSettings(), SentenceSettings(splitter="line"), max_sentences=sentences
    )
    small = ScanPlan(plan.source, plan.settings, plan.sentences, max_sentences=500)
    run_scan(model, small, Path(out) / "small")  # the first use of everything is not the scan's own
    before, began = resident(), time.perf_counter()
    run_scan(model, plan, Path(out) / "large")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = time.perf_counter() - began
    print(
        f"| {sentences:,} | {before:,.0f} | {peak:,.0f} | {peak - before:,.0f} | {took:.0f} |",
        flush=True,
    )


def main() -> None:
    """Write the text once, then measure each count in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", default="10000,100000,1000000")
    parser.add_argument("--inside", nargs=3, metavar=("TEXT", "N", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        text, sentences, out = options.inside
        measure(text, int(sentences), out)
        return
    counts = [int(count) for count in options.sentences.split(",")]
    draw = random.Random(0)
    print("| sentences | MiB before | MiB at most | MiB more | seconds |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        with path.open("w") as file:
            for _ in range(max(counts)):
                file.write(" ".join(draw.choices(WORDS, k=3)) + ".\n")
        for count in counts:
            out = str(Path(folder) / str(count))
            command = ["-m", "benchmarks.memory", "--inside", str(path), str(count), out]
            subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main()
