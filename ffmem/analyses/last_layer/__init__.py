"""Where the last layer composes a new token: cases to judge, and a judge by rule as a stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ffmem.analyses.analysis import Analysis, Cost
from ffmem.analyses.last_layer.claims import CLAIMS, QUESTIONS, with_judgements
from ffmem.analyses.last_layer.record import LastLayer

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> LastLayer:
    from ffmem.analyses.last_layer.measure import measure  # here: torch is slow to import

    return measure(inputs.model, inputs.reading, inputs.generator)


def _arrays(inputs: StudyInputs) -> dict[str, Any]:
    from ffmem.analyses.inputs.layer_readings import sample_arrays

    return sample_arrays(inputs.reading)


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
    arrays={"sample": _arrays},
)
