"""Token removal at the paper's size: 100 keys per layer, 50 triggers each, first, last and random.

    python -m benchmarks.removal_paper_size MODEL SCAN [--dtype float32] [--rounds 3]

MODEL is a folder or name, SCAN the folder of its scan. Loading the model is timed apart. Needs
torch, transformers, numpy and pyarrow only; figures are drawn elsewhere from the numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from ffmem.analyses.removal import Removal, removal
from ffmem.models.loading import load
from ffmem.store.result_files import ResultFile, write_result
from ffmem.store.scan_store import ScanStore


def main() -> None:
    """Measure, print the seconds and Fig 3's numbers, and leave them as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("scan", type=Path)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for removal.json")
    options = parser.parse_args()
    began = time.perf_counter()
    model, store = load(options.model, dtype=options.dtype), ScanStore.open(options.scan)
    loading = time.perf_counter() - began
    seconds, result = [], None
    for _ in range(options.rounds):
        began = time.perf_counter()
        result = removal(model, store, options.keys, options.top, options.seed)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - began, 2))
    assert result is not None
    report(result)
    print(
        json.dumps(
            {
                "device": str(model.device),
                "dtype": str(model.dtype),
                "keys": sum(layer.keys for layer in result.layers),
                "triggers": sum(layer.triggers for layer in result.layers),
                "rows": result.passes,
                "tokens": result.tokens,
                "loading_s": round(loading, 2),
                "removal_s": seconds,
                "median_s": statistics.median(seconds),
            }
        )
    )
    if options.out is not None:
        made = {"scan": store.manifest.key.digest, "seed": options.seed, "keys": options.keys}
        record = ResultFile("removal", made, statistics.median(seconds), result)
        write_result(options.out / "removal.json", record)


def report(result: Removal) -> None:
    """One line per layer: the mean changes in percent with their intervals."""
    for layer in result.layers:
        cells = "  ".join(
            f"{name} {c.mean.estimate:6.1f} ({c.mean.low:.1f} .. {c.mean.high:.1f})"
            for name, c in (("first", layer.first), ("last", layer.last), ("random", layer.random))
        )
        print(f"layer {layer.layer:2}  {cells}  n {layer.triggers} of {layer.keys} keys")


if __name__ == "__main__":
    main()
