"""What do keys and values say from weights alone, without a text?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ffmem.analyses.analysis import Analysis, Cost, Figure
from ffmem.analyses.weights.record import Weights

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> Weights:
    from ffmem.analyses.weights.measure import summarise_weights  # here: torch is slow to import

    return summarise_weights(inputs.weights, inputs.generator)


def _arrays(inputs: StudyInputs) -> dict[str, Any]:
    from ffmem.analyses.weights.measure import table_columns

    return table_columns(inputs.weights)


def _figures() -> tuple[Figure[Weights], ...]:
    from ffmem.analyses.weights.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "weights",
    Weights,
    _measure,
    chapter="weights",
    cost=lambda work: Cost(projections=2 * work.memories, seconds=2),
    figures=_figures,
    cites=("gerstner2025", "gurnee2024", "stolfo2024"),
    arrays={"weights": _arrays},
)
