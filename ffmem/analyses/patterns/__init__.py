"""Which patterns do the triggers of a key share? Figure 2, Tables 1 and 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffmem.analyses.analysis import Analysis, Cost, Figure, Growth
from ffmem.analyses.patterns.claims import CLAIMS, QUESTIONS, with_judgements
from ffmem.analyses.patterns.record import PatternResults

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs


def _measure(inputs: StudyInputs) -> PatternResults:
    from ffmem.analyses.patterns.measure import patterns_by_rule  # here: torch is slow to import

    return patterns_by_rule(inputs.store, inputs.sizes.pattern_keys, inputs.seed)


def _figures() -> tuple[Figure[PatternResults], ...]:
    from ffmem.analyses.patterns.charts import FIGURES  # here: Altair is slow to import

    return FIGURES


ANALYSIS = Analysis(
    "patterns",
    PatternResults,
    _measure,
    chapter="keys",
    cost=lambda work: Cost(seconds=10 + 0.12 * work.layers * work.sizes.pattern_keys),
    sizes=("pattern_keys",),
    figures=_figures,
    claims=CLAIMS,
    grows=Growth("pattern_keys", "keys a layer"),
    questions=QUESTIONS,
    left_out=PatternResults.left_out,
    with_judgements=with_judgements,
)
