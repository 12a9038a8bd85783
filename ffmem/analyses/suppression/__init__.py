"""The right memory fired and the layer said otherwise: how often, where, and by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure
from ffmem.analyses.suppression.record import Suppression

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> Suppression:
    from ffmem.analyses.suppression.measure import measure  # here: torch is slow to import

    return measure(inputs.reading)


def _figures() -> tuple[Figure[Suppression], ...]:
    from ffmem.analyses.suppression.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "suppression",
    Suppression,
    _measure,
    chapter="composition",
    cost=lambda _: Cost(seconds=1),
    sizes=("sample", "places"),
    figures=_figures,
)
