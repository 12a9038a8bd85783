"""How far a 16-bit scan finds the triggers of a 32-bit one.

    python -m benchmarks.precision MODEL CORPUS [--sentences N] [--device cuda]

Prints the mean overlap of the top 50 over all cells whose slots are filled, and the share of cells
with an overlap under 0.9.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from ffmem import demo
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.models.loading import load
from ffmem.pipeline import ScanPlan, scan
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore
from ffmem.store.writing import NO_SENTENCE


def main() -> None:
    """Scan twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=20000)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = []
        for dtype in ("float32", "bfloat16"):
            model = load(options.model, device=options.device, dtype=dtype)
            plan = ScanPlan(
                Source(demo.corpus(options.corpus)),
                ScanSettings(signed=model.gated),
                SentenceSettings(),
                max_sentences=options.sentences,
            )
            stores.append(scan(model, plan, Path(folder) / dtype))
        report(*stores)


def report(exact: ScanStore, rounded: ScanStore) -> None:
    """Overlap of sentences cell by cell."""
    one, other = (store.array("trigger_sentences") for store in (exact, rounded))
    full = (one != NO_SENTENCE).all(axis=1)
    shared = [
        len(np.intersect1d(a, b)) / len(a) for a, b in zip(one[full], other[full], strict=True)
    ]
    print(
        f"top-{one.shape[1]} overlap of bfloat16 with float32: mean {np.mean(shared):.4f}, "
        f"{np.mean(np.array(shared) < 0.9):.2%} of cells under 0.9 "
        f"({full.sum():,} filled cells, {exact.manifest.counts['sentences']:,} sentences)"
    )
    for number, memories in exact.manifest.layers:
        start = exact.row(exact.address(number, 0))
        rows = np.arange(start, start + memories)[full[start : start + memories]]
        mean = np.mean([len(np.intersect1d(one[r], other[r])) / one.shape[1] for r in rows])
        print(f"  layer {number:2d}: {mean:.4f}")


if __name__ == "__main__":
    main()
