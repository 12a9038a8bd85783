"""Do values predict the token that follows their keys' triggers? Figures 4, 5, 6 and Table 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ffmem.analyses.analysis import Analysis, Cost, Figure
from ffmem.analyses.values.claims import CLAIMS, QUESTIONS
from ffmem.analyses.values.record import Values

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> Values:
    from ffmem.analyses.values.measure import measure  # here: torch is slow to import

    return measure(
        inputs.model, inputs.store, inputs.values, inputs.generator, inputs.sizes.tested_triggers
    )


def _arrays(inputs: StudyInputs) -> dict[str, Any]:
    import torch  # here: it is slow to import

    return {"ranks": torch.cat([part.ranks.int() for part in inputs.values]).numpy()}


def _figures() -> tuple[Figure[Values], ...]:
    from ffmem.analyses.values.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "values",
    Values,
    _measure,
    chapter="values",
    cost=lambda work: Cost(projections=5 * work.memories * work.signs, seconds=2),
    sizes=("tested_triggers",),
    figures=_figures,
    claims=CLAIMS,
    questions=QUESTIONS,
    left_out=Values.left_out,
    arrays={"values": _arrays},
)
