"""Do the memories of a layer agree with its prediction, or is it made of many? Figures 7, 8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Growth
from ffmem.analyses.composition.claims import CLAIMS, QUESTIONS
from ffmem.analyses.composition.record import Composition

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> Composition:
    from ffmem.analyses.composition.measure import measure  # here: torch is slow to import

    return measure(inputs.model, inputs.reading, inputs.generator)


def _figures() -> tuple[Figure[Composition], ...]:
    from ffmem.analyses.composition.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "composition",
    Composition,
    _measure,
    chapter="composition",
    cost=lambda work: Cost(projections=work.whole[1], seconds=2),
    sizes=("sample", "places"),
    figures=_figures,
    claims=CLAIMS,
    grows=Growth("sample", "sentences"),
    questions=QUESTIONS,
)
