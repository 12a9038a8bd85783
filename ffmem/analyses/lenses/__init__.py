"""Do values of lower layers not predict, or do they only speak another language?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Workload
from ffmem.analyses.lenses.record import PLACES, Lenses

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


PREFIXES = 4  # that a memory is forced on at


def _cost(work: Workload) -> Cost:
    measured = 5 * work.layers * work.prefix * work.sizes.lens_memories
    return Cost(
        tokens=measured + work.sentences(PLACES) * work.prefix,
        projections=6 * work.memories * work.signs + 1000 * work.layers,
        seconds=2,
    )


def _measure(inputs: StudyInputs) -> Lenses:
    from ffmem.analyses.lenses.measure import measure  # here: torch is slow to import

    return measure(
        inputs.model,
        inputs.store,
        inputs.sample,
        inputs.generator,
        (inputs.sizes.lens_memories, PREFIXES),
    )


def _figures() -> tuple[Figure[Lenses], ...]:
    from ffmem.analyses.lenses.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "lenses",
    Lenses,
    _measure,
    chapter="values",
    cost=_cost,
    sizes=("sample", "lens_memories"),
    figures=_figures,
    cites=("nostalgebraist2020", "belrose2023", "kornblith2019"),
)
