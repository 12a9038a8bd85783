"""Random weights beside random weights: no claim may hold more often than the error rate says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffmem.analyses.controls import untrained_model
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.loading import load
from ffmem.report.paper_claims import CLAIMS
from ffmem.report.verdicts import judge_claims
from ffmem.scan.settings import ScanSettings
from ffmem.studies.inputs import Sizes, StudyInputs, untrained_inputs
from ffmem.studies.registry import ANALYSES
from tests.analyses.conftest import lines

SIZES = Sizes(sample=120, pattern_keys=8, removal_keys=20, removal_triggers=4, causal_memories=8)
JUDGED = ("removal", "values", "composition", "refinement", "last-layer", "causal")


@pytest.mark.parametrize("kind", ["opt", "gpt2", "llama", "gpt_neox", "gemma2"])
def test_nothing_holds_for_random_weights(kind: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines(150, 1)) + "\n")
    model = untrained_model(load(f"tiny:{kind}"), seed=1)
    plan = ScanPlan(
        Source(str(corpus)),
        ScanSettings(top=5, sample=2, signed=model.gated),
        SentenceSettings(splitter="line", max_tokens=60),
    )
    study = StudyInputs(model, run_scan(model, plan, tmp_path / "study"), SIZES)
    twin = untrained_inputs(study, tmp_path / "twin")
    mine, other = (
        {name: ANALYSES[name].run(inputs) for name in JUDGED} for inputs in (study, twin)
    )
    verdicts = judge_claims(CLAIMS, mine, other)
    assert sum(verdict.finding is not None for verdict in verdicts) > 20
    assert [verdict.name for verdict in verdicts if verdict.word == "holds"] == []
