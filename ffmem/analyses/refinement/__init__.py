"""How does the prediction change from layer to layer? Figures 9, 10 and 11, and the veto test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Growth
from ffmem.analyses.refinement.claims import CLAIMS, QUESTIONS
from ffmem.analyses.refinement.record import Refinement

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> Refinement:
    from ffmem.analyses.refinement.measure import measure  # here: torch is slow to import

    return measure(inputs.reading, inputs.model.vocab_size, inputs.generator)


def _figures() -> tuple[Figure[Refinement], ...]:
    from ffmem.analyses.refinement.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "refinement",
    Refinement,
    _measure,
    chapter="refinement",
    cost=lambda _: Cost(seconds=1),
    sizes=("sample", "places"),
    figures=_figures,
    cites=("nostalgebraist2020",),
    claims=CLAIMS,
    grows=Growth("sample", "sentences"),
    questions=QUESTIONS,
)
