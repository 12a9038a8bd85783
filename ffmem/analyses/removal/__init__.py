"""Which end of a trigger does a key need? Figure 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Growth, Workload
from ffmem.analyses.removal.claims import CLAIMS, QUESTIONS
from ffmem.analyses.removal.record import Removal

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _cost(work: Workload) -> Cost:
    triggers = work.layers * work.sizes.removal_keys * work.sizes.removal_triggers
    return Cost(tokens=1.8 * triggers * work.prefix, seconds=2)


def _measure(inputs: StudyInputs) -> Removal:
    from ffmem.analyses.removal.measure import measure  # here: torch is slow to import

    return measure(
        inputs.model,
        inputs.store,
        inputs.sizes.removal_keys,
        inputs.sizes.removal_triggers,
        inputs.seed,
    )


def _figures() -> tuple[Figure[Removal], ...]:
    from ffmem.analyses.removal.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "removal",
    Removal,
    _measure,
    chapter="keys",
    cost=_cost,
    sizes=("removal_keys", "removal_triggers"),
    figures=_figures,
    claims=CLAIMS,
    grows=Growth("removal_keys", "keys a layer"),
    questions=QUESTIONS,
    left_out=Removal.left_out,
)
