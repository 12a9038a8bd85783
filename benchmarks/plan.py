"""What a study's plan says and what each stage then takes, in one run.

    python -m benchmarks.plan [MODEL] [CORPUS] [--sentences 6000] [--threads 2] [--no-controls]

Prints for every stage the planned seconds, those on the clock, those of processors, and the real
ones over the plan's. On a busy machine the clock says nothing: run with `--threads 1` and compare
the seconds of processors, whose ratios between stages do not depend on who else computes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from ffmem import demo
from ffmem.analyses.analysis import SMALL_SIZES
from ffmem.analyses.estimate import RANKING, SCAN, estimate
from ffmem.analyses.runner import AnalysisEvent
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.steps import listen
from ffmem.workflows import StudyPlan, Watches, control_analyses, run_study_plan


class Clock:
    """Seconds on the clock and of processors, by stage."""

    def __init__(self) -> None:
        self.stage, self.since = "", (0.0, 0.0)
        self.took: dict[str, tuple[float, float]] = {}
        self.begin(SCAN)

    @staticmethod
    def now() -> tuple[float, float]:
        """The clock, and processors in this process and in those that it has waited for."""
        return time.monotonic(), sum(os.times()[:4])

    def begin(self, stage: str) -> None:
        """A stage begins, and the one before ends."""
        now = self.now()
        if self.stage:
            before = self.took.get(self.stage, (0.0, 0.0))
            self.took[self.stage] = (
                before[0] + now[0] - self.since[0],
                before[1] + now[1] - self.since[1],
            )
        self.stage, self.since = stage, now

    def ranking(self, _what: str, _share: float) -> None:
        """Values are ranked when all text is read; later rankings are of controls."""
        if self.stage == SCAN:
            self.begin(RANKING)

    def analysis(self, event: AnalysisEvent) -> None:
        """An analysis, the controls or the report begins."""
        if event.state == "begun":
            self.begin(event.analysis)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("corpus", nargs="?", default="demo")
    parser.add_argument("--sentences", type=int, default=6000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-controls", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load(options.model)
    plan = StudyPlan(
        ScanPlan(
            Source(demo.corpus(options.corpus)),
            ScanSettings(signed=model.gated),
            SentenceSettings(),
            max_sentences=options.sentences,
        ),
        SMALL_SIZES,
        controls=not options.no_controls,
    )
    again = control_analyses(plan.only) if plan.controls else ()
    planned = estimate(model, plan.scan, plan.sizes, plan.only, controls=again).seconds
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        watches = Watches(analyses=clock.analysis)
        with listen(clock.ranking):
            run_study_plan(model, plan, Path(folder) / "study", watches=watches)
        clock.begin("")
    total = tuple(map(sum, zip(*clock.took.values(), strict=True)))
    print(f"{'stage':<16}{'plan':>8}{'clock':>8}{'cpu':>8}{'clock/plan':>12}{'cpu/plan':>10}")
    for stage, (clock_s, cpu) in [*clock.took.items(), ("all", total)]:
        plan_s = sum(planned.values()) if stage == "all" else planned.get(stage, 0.0)
        ratios = f"{clock_s / plan_s:>12.2f}{cpu / plan_s:>10.2f}" if plan_s else ""
        print(f"{stage:<16}{plan_s:8.1f}{clock_s:8.1f}{cpu:8.1f}{ratios}")


if __name__ == "__main__":
    main()
