"""Random weights beside random weights: no claim may hold more often than the error rate says."""

from __future__ import annotations

from pathlib import Path

from ffmem.analyses.controls import untrained_model
from ffmem.corpus.sentences import SentenceSettings
from ffmem.corpus.sources import Source
from ffmem.execution.run import ScanPlan, run_scan
from ffmem.models.loading import load
from ffmem.report.paper_claims import CLAIMS
from ffmem.report.verdicts import Verdict, judge_claims
from ffmem.scan.settings import ScanSettings
from ffmem.studies.inputs import Sizes, StudyInputs, untrained_inputs
from ffmem.studies.registry import ANALYSES
from tests.analyses.conftest import lines

SIZES = Sizes(sample=80, pattern_keys=8, removal_keys=12, removal_triggers=4, causal_memories=4)
JUDGED = ("removal", "values", "composition", "refinement", "last-layer", "causal")


KINDS = ("opt", "gpt2", "llama", "gpt_neox", "gemma2")


def verdicts_on_random_weights(kind: str, folder: Path) -> list[Verdict]:
    """A model with random weights, judged as if it were trained."""
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(lines(150, 1)) + "\n")
    model = untrained_model(load(f"tiny:{kind}"), seed=1)
    plan = ScanPlan(
        Source(str(corpus)),
        ScanSettings(top=5, sample=2, signed=model.gated),
        SentenceSettings(splitter="line", max_tokens=60),
    )
    study = StudyInputs(model, run_scan(model, plan, folder / "study"), SIZES)
    twin = untrained_inputs(study, folder / "twin")
    mine, other = (
        {name: ANALYSES[name].run(inputs) for name in JUDGED} for inputs in (study, twin)
    )
    return judge_claims(CLAIMS, mine, other)


def test_random_weights_hold_no_more_often_than_the_error_rate(tmp_path: Path) -> None:
    """Of five tables, each wrong with a chance of 5 %, two are wrong once in forty times."""
    holding: list[str] = []
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        verdicts = verdicts_on_random_weights(kind, tmp_path / kind)
        assert sum(verdict.finding is not None for verdict in verdicts) > 20
        holding += [f"{kind}: {one.name}" for one in verdicts if one.word == "holds"]
    assert len(holding) <= 1, holding
