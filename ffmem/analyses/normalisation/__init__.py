"""What would a softmax over the keys make of each layer (equation 2 of the paper)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure
from ffmem.analyses.normalisation.record import Normalisation

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> Normalisation:
    from ffmem.analyses.normalisation.measure import measure  # here: torch is slow to import

    return measure(inputs.reading, inputs.generator)


def _figures() -> tuple[Figure[Normalisation], ...]:
    from ffmem.analyses.normalisation.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "normalisation",
    Normalisation,
    _measure,
    chapter="composition",
    cost=lambda _: Cost(seconds=1),
    sizes=("sample", "places"),
    figures=_figures,
)
