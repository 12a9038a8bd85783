"""The whole paper on one page: scan a model, answer every question, draw and report."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ffmem.corpus.sources import Source
from ffmem.execution.run import Cluster, ScanPlan, Watch, run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.studies.inputs import PAPER, Sizes, StudyInputs
from ffmem.studies.registry import ANALYSES
from ffmem.studies.runner import AnalysisEvent, run_analyses
from ffmem.studies.runner import Watch as AnalysisWatch
from ffmem.studies.study import Study, open_study

REPORT = "report"


@dataclass(frozen=True)
class StudyPlan:
    """What to study: the scan, how much each analysis measures, and on which text."""

    scan: ScanPlan
    sizes: Sizes = PAPER
    valid: Source | None = None  # None: the demo's own, or the scanned text
    only: tuple[str, ...] = tuple(ANALYSES)
    seed: int = 0
    cluster: Cluster | None = None  # where the scan runs; None: in this process


@dataclass(frozen=True)
class Watches:
    """Who is told of every batch of the scan, and of every analysis."""

    scan: Watch = lambda _progress, _share: None
    analyses: AnalysisWatch = lambda _event: None


def run_study(
    model: LanguageModel,
    plan: StudyPlan,
    out: Path,
    again: Collection[str] = (),
    watches: Watches = Watches(),  # noqa: B008 - frozen
) -> tuple[Study, list[AnalysisEvent]]:
    """Scan, analyse, draw and report into the folder `out`; what is there already is kept.

    Results of other settings are moved beside the study's own (`store/result_places.py`).
    Returns the study and how each analysis ended: an analysis that failed leaves the others.
    """
    store = run_scan(model, plan.scan, out, watches.scan, plan.cluster)
    subject = StudyInputs(model, store, plan.sizes, plan.valid, plan.seed)
    events = run_analyses(subject, plan.only, out, again, watches.analyses, take_over=plan.only)
    found = open_study(out)
    from ffmem.report.report_writer import write_report  # Altair is slow, and a scan needs none

    page = found.store.folder.report_page
    if page.exists() and REPORT not in again and all(one.state == "kept" for one in events):
        events.append(AnalysisEvent(REPORT, "kept"))
    else:
        watches.analyses(AnalysisEvent(REPORT, "begun"))
        found.draw()
        write_report(found)
        events.append(AnalysisEvent(REPORT, "made"))
    watches.analyses(events[-1])
    return found, events
