"""Fig 2 by rule, with its controls and held-out scores, on a machine without database or charts.

    python -m benchmarks.patterns_by_rule MODEL SCAN [--keys 10] [--out FOLDER]

Needs torch, transformers, numpy and pyarrow only. `--out` gets patterns.json, a record that
`ffmem` on another machine can draw once it lies in SCAN/analyses.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ffmem.models.loading import load
from ffmem.patterns.analysis import PatternResults, patterns_by_rule
from ffmem.patterns.embeddings import WordStates
from ffmem.store.result_files import ResultFile, write_result
from ffmem.store.scan_store import ScanStore


def main() -> None:
    """Annotate, print Fig 2's numbers and the seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("scan", type=Path)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model, store = load(options.model, dtype=options.dtype), ScanStore.open(options.scan)
    began = time.perf_counter()
    study = patterns_by_rule(
        store, lambda counted: WordStates(model, counted), options.keys, options.seed, "states"
    )
    seconds = round(time.perf_counter() - began, 2)
    report(study)
    print(f"{seconds} s on {model.device}")
    if options.out is not None:
        made = {
            "scan": store.manifest.key.digest,
            "seed": options.seed,
            "pattern_keys": options.keys,
        }
        write_result(options.out / "patterns.json", ResultFile("patterns", made, seconds, study))


def report(study: PatternResults) -> None:
    """Shares by layer, controls, held-out scores."""
    for layer in (*study.summary.layers, study.summary.overall):
        shares = "  ".join(f"{name} {100 * s.estimate:5.1f}" for name, s in layer.shares.items())
        print(f"layer {layer.layer or 'all':>3}  {shares}  {layer.patterns_per_key.estimate:.1f}")
    print(f"crossover {study.summary.crossover}, dead {study.dead}")
    for control in study.controls:
        rate = control.false_patterns
        print(f"{control.kind} controls: {rate.estimate:.3f} ({rate.low:.3f} .. {rate.high:.3f})")
    for row in study.held_out:
        print(
            f"{row.on} {row.kind} v. {row.against}: {row.patterns} patterns, precision "
            f"{row.precision:.2f}, recall {row.recall:.2f}, AUC {row.auc.estimate:.2f} "
            f"({row.auc.low:.2f} .. {row.auc.high:.2f})"
        )


if __name__ == "__main__":
    main()
