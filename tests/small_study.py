"""A small study of a toy: scan, every analysis, report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ffmem.analyses.analysis import Sizes
from ffmem.analyses.catalogue import ANALYSES
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import Study, open_study
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.workflows import StudyPlan, run_study_plan
from tests.analyses.conftest import lines

DRAWN = ("values-agreement", "refinement-winners")
FEW = Sizes(
    sample=36,
    places=2,
    pattern_keys=2,
    removal_keys=2,
    removal_triggers=3,
    lens_memories=2,
    causal_memories=2,
    attribution_prompts=3,
)


@contextmanager
def calibration_on_few_keys() -> Iterator[None]:
    """The rule annotator is set on few control keys: no test of a small study asks how well."""
    with pytest.MonkeyPatch.context() as patch:
        for name, number in (
            ("CALIBRATION", 21),
            ("FEATURE_PREFIXES", 1500),
            ("POOL", 400),
            ("CONTROLS_A_KEY", 1),
        ):
            patch.setattr(f"ffmem.analyses.patterns.measure.{name}", number)
        yield


@contextmanager
def drawing_few_figures() -> Iterator[None]:
    """Of all figures a few are drawn."""
    with pytest.MonkeyPatch.context() as patch:
        for row in ANALYSES.values():
            if every := row.figures():
                few = tuple(one for one in every if one.name in DRAWN)
                patch.setattr(f"{row.figures.__module__}.charts.FIGURES", few)
        yield


def small_plan(out: Path, model: LanguageModel) -> StudyPlan:
    """What is studied; the text has markup, so that escaping is seen to work."""
    corpus = out.with_suffix(".txt")
    corpus.write_text("\n".join([*lines(150, 1), "river <b>stone</b> & light."]) + "\n")
    scan = ScanPlan(
        Source(str(corpus)),
        ScanSettings(top=26, sample=6, signed=model.gated),
        SentenceSettings(splitter="line", max_tokens=60),
    )
    return StudyPlan(scan, FEW, only=tuple(ANALYSES))


def small_study(kind: str, out: Path) -> Study:
    """Study a toy: scan, every analysis and report; the files of figures, which take as long as
    all else, are made by `tests/analyses/test_runner.py`.
    """
    model = load(f"tiny:{kind}")
    with calibration_on_few_keys(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "draw", lambda _study: None)
        found, events = run_study_plan(model, small_plan(out, model), out)
    assert {event.state for event in events} == {"made"}, events
    return found


def small_results(model: LanguageModel, out: Path) -> Study:
    """Scan and every analysis of a toy, without figures and report, which need more packages."""
    plan = small_plan(out, model)
    inputs = StudyInputs(model, run_scan(model, plan.scan, out), plan.sizes)
    with calibration_on_few_keys():
        events = run_analyses(inputs, plan.only, out)
    assert {event.state for event in events} == {"made"}, events
    return open_study(out)
