"""Where the last layer composes a new token: cases to judge, and a judge by rule as a stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost
from ffmem.analyses.last_layer.claims import CLAIMS, QUESTIONS, with_judgements
from ffmem.analyses.last_layer.record import LastLayer

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> LastLayer:
    from ffmem.analyses.last_layer.measure import measure  # here: torch is slow to import

    return measure(inputs.model, inputs.reading, inputs.generator)


ANALYSIS = Analysis(
    "last-layer",
    LastLayer,
    _measure,
    chapter="refinement",
    cost=lambda _: Cost(seconds=1),
    sizes=("sample", "places"),
    claims=CLAIMS,
    questions=QUESTIONS,
    with_judgements=with_judgements,
)
