"""The time that `ffmem study` announces against the time it takes, analysis by analysis.

python -m benchmarks.plan demo demo --max-sentences 2000
python -m benchmarks.plan smollm2 corpus.txt --layers 5,25 --max-sentences 60 --sample 100 --twin

Ends with code 1 where the total is off by more than the factor that `--factor` names.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ffmem import demo
from ffmem.cli.commands.scan import layer_numbers
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.studies.estimates import SCAN, estimate
from ffmem.studies.inputs import SIZES
from ffmem.studies.registry import parse_names
from ffmem.studies.runner import AnalysisEvent
from ffmem.workflows import StudyPlan, Watches, run_study_plan, twin_analyses


def main() -> int:
    """Announce, run, compare."""
    words = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    words.add_argument("model")
    words.add_argument("corpus")
    words.add_argument("--layers")
    words.add_argument("--only")
    words.add_argument("--max-sentences", type=int, default=2000)
    words.add_argument("--size", choices=list(SIZES), default="small")
    words.add_argument("--sample", type=int, help="validation prefixes, instead of the size's")
    words.add_argument("--twin", action="store_true", help="the untrained twin too")
    words.add_argument("--factor", type=float, default=1.5)
    asked = words.parse_args()
    model = load(asked.model)
    scan = ScanPlan(
        Source(demo.corpus(asked.corpus)),
        ScanSettings(signed=model.gated),
        SentenceSettings(),
        None if asked.layers is None else layer_numbers(asked.layers),
        max_sentences=asked.max_sentences,
    )
    sizes = SIZES[asked.size]
    if asked.sample is not None:
        sizes = replace(sizes, sample=asked.sample)
    plan = StudyPlan(scan, sizes, only=parse_names(asked.only), twin=asked.twin)
    twin = twin_analyses(plan.only) if asked.twin else ()
    expected = estimate(model, scan, plan.sizes, plan.only, twin=twin)
    began = last = time.monotonic()
    print("analysis         announced      took   took / announced", flush=True)

    def end(name: str) -> None:
        nonlocal last
        took, last = time.monotonic() - last, time.monotonic()
        print(line(name, expected.seconds[name], took), flush=True)

    def watch(event: AnalysisEvent) -> None:
        if event.state == "begun" and last == began:
            end(SCAN)
        if event.state in ("made", "failed"):
            end(event.analysis)

    with tempfile.TemporaryDirectory() as folder:
        run_study_plan(model, plan, Path(folder) / "study", watches=Watches(analyses=watch))
    total = time.monotonic() - began
    print(line("all", expected.total, total))
    return 0 if 1 / asked.factor <= total / expected.total <= asked.factor else 1


def line(name: str, announced: float, took: float) -> str:
    """One line of the table."""
    return f"{name:<14} {announced:9.1f} s {took:7.1f} s {took / announced:18.2f}"


if __name__ == "__main__":
    sys.exit(main())
