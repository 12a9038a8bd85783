"""The experts of a mixture: how the router loads them, what for, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Workload
from ffmem.analyses.experts.record import Experts

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _cost(work: Workload) -> Cost:
    return Cost(tokens=2 * work.sizes.sample * work.prefix, seconds=5 + work.layers)


def _measure(inputs: StudyInputs) -> Experts:
    from ffmem.analyses.experts.measure import measure  # here: torch is slow to import

    return measure(inputs.model, inputs.store, inputs.sample, inputs.values, inputs.generator)


def _figures() -> tuple[Figure[Experts], ...]:
    from ffmem.analyses.experts.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "experts",
    Experts,
    _measure,
    chapter="experts",
    cost=_cost,
    sizes=("sample",),
    figures=_figures,
    of_experts=True,
)
