"""How far can predicted effects of memories be believed? Compared with true silencing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Workload
from ffmem.analyses.attribution.record import Attribution

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs

COPIES = 20  # of a prompt, of those that do not depend on the number of layers
OF_A_LAYER = 3
CONTROL = 1.25  # the model, and on a fourth of the prompts its control


def _cost(work: Workload) -> Cost:
    copies = COPIES + OF_A_LAYER * work.whole[0]
    prompts = CONTROL * work.sentences(work.sizes.attribution_prompts)
    return Cost(tokens=copies * prompts * work.prefix, seconds=3)


def _measure(inputs: StudyInputs) -> Attribution:
    from ffmem.analyses.attribution.measure import measure  # here: torch is slow to import

    return measure(inputs.model, inputs.sample, inputs.sizes.attribution_prompts, inputs.seed)


def _figures() -> tuple[Figure[Attribution], ...]:
    from ffmem.analyses.attribution.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "attribution",
    Attribution,
    _measure,
    chapter="causal",
    cost=_cost,
    sizes=("sample", "attribution_prompts"),
    figures=_figures,
    on_request=True,
)
