"""A small study of a toy: scan, every analysis, report."""

from __future__ import annotations

from pathlib import Path

from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from ffmem.studies.inputs import Sizes
from ffmem.studies.study import Study
from ffmem.workflows import StudyPlan, run_study
from tests.analyses.conftest import lines

FEW = Sizes(
    sample=12,
    pattern_keys=2,
    removal_keys=2,
    removal_triggers=3,
    lens_memories=2,
    causal_memories=2,
)


def small_study(kind: str, out: Path, model: LanguageModel | None = None) -> Study:
    """Study a toy, or this form of it; the text has markup, so that escaping is seen to work."""
    corpus = out.with_suffix(".txt")
    corpus.write_text("\n".join([*lines(150, 1), "river <b>stone</b> & light."]) + "\n")
    model = model or load(f"tiny:{kind}")
    scan = ScanPlan(
        Source(str(corpus)),
        ScanSettings(top=26, sample=6, signed=model.gated),
        SentenceSettings(splitter="line", max_tokens=60),
    )
    found, events = run_study(model, StudyPlan(scan, FEW), out)
    assert {event.state for event in events} == {"made"}
    return found
