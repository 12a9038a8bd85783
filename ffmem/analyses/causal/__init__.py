"""What changes when a memory is silenced or forced? Correlation with triggers is not yet cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Growth, Workload
from ffmem.analyses.causal.claims import CLAIMS
from ffmem.analyses.causal.record import Causal

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _cost(work: Workload) -> Cost:
    return Cost(tokens=100 * work.layers * work.prefix * work.sizes.causal_memories, seconds=5)


def _measure(inputs: StudyInputs) -> Causal:
    from ffmem.analyses.causal.measure import measure  # here: torch is slow to import

    return measure(
        inputs.model,
        inputs.store,
        inputs.sample,
        inputs.generator,
        inputs.sizes.causal_memories,
    )


def _figures() -> tuple[Figure[Causal], ...]:
    from ffmem.analyses.causal.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "causal",
    Causal,
    _measure,
    chapter="causal",
    cost=_cost,
    sizes=("sample", "causal_memories"),
    figures=_figures,
    claims=CLAIMS,
    grows=Growth("causal_memories", "memories a layer"),
)
