"""A memory's coefficient at every token of a sentence, for the memories that pages show first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ffmem.analyses.analysis import Analysis, Cost, Workload
from ffmem.analyses.coefficients.record import CONFIDENT, StoredSizes
from ffmem.store.memory_page import BANDS, PER_BAND
from ffmem.store.slots import TRIGGERS_SHOWN

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


PAGE_SENTENCES = TRIGGERS_SHOWN + PER_BAND * (len(BANDS) - 1)  # on a memory's page, at most


def _sentences(work: Workload) -> float:
    """Sentences on the pages of the first memories; a layer reads each of its own once."""
    memories = work.layers * work.sizes.pattern_keys + CONFIDENT
    return min(PAGE_SENTENCES * memories, work.layers * work.sentences(math.inf))


def _measure(inputs: StudyInputs) -> StoredSizes:
    return inputs.coefficients.sizes


def _arrays(inputs: StudyInputs) -> dict[str, Any]:
    return inputs.coefficients.arrays


ANALYSIS = Analysis(
    "coefficients",
    StoredSizes,
    _measure,
    chapter="",
    cost=lambda work: Cost(tokens=work.tokens_per_sentence * _sentences(work)),
    sizes=("pattern_keys",),
    on_request=True,
    arrays={"coefficients": _arrays},
)
