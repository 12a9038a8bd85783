"""Random weights beside random weights: no claim may hold more often than the error rate says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.random_tables import judge_study
from ffmem.analyses.analysis import Sizes
from ffmem.analyses.controls import untrained_model
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.verdicts import Verdict
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.plan import ScanPlan
from ffmem.execution.run import run_scan
from ffmem.models.loading import load
from ffmem.scan.settings import ScanSettings
from tests.analyses.conftest import lines

SIZES = Sizes(sample=80, pattern_keys=8, removal_keys=12, removal_triggers=4, causal_memories=4)
JUDGED = ("removal", "values", "composition", "refinement", "last-layer", "causal")


KINDS = ("opt", "llama", "gemma2")

FACT_OF_THE_SHAPE = "layers-are-most-parameters"  # true of any weights


def verdicts_on_random_weights(kind: str, folder: Path) -> list[Verdict]:
    """A model with random weights, judged as if it were trained."""
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(lines(150, 1)) + "\n")
    model = untrained_model(load(f"tiny:{kind}"), seed=1001)  # no seed of its controls
    plan = ScanPlan(
        Source(str(corpus)),
        ScanSettings(top=5, sample=2, signed=model.gated),
        SentenceSettings(splitter="line", max_tokens=60),
    )
    study = StudyInputs(model, run_scan(model, plan, folder / "study"), SIZES)
    return judge_study(study, JUDGED, folder / "control")


def test_random_weights_hold_no_more_often_than_the_error_rate(tmp_path: Path) -> None:
    """Of three tables, each wrong with a chance of 5 %, two are wrong once in 140 times."""
    holding: list[str] = []
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        verdicts = verdicts_on_random_weights(kind, tmp_path / kind)
        assert sum(verdict.finding is not None for verdict in verdicts) > 20
        holding += [
            f"{kind}: {one.name}"
            for one in verdicts
            if one.word == "holds" and one.name != FACT_OF_THE_SHAPE
        ]
    assert len(holding) <= 1, holding
