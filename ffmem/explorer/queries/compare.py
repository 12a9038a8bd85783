"""This study beside others: the same claims, the same figures on the same scales."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ffmem.analyses.drift.matching import Matching
from ffmem.analyses.drift.measure import Drift, compare_memories, comparison_rows
from ffmem.analyses.drift.record import MemoryComparison
from ffmem.analyses.study import Study
from ffmem.analyses.verdicts import Verdict
from ffmem.errors import AddressError
from ffmem.explorer.context import StudyContext
from ffmem.figures.saving import picture
from ffmem.locations import is_remote
from ffmem.models.language_model import LanguageModel
from ffmem.report.comparison import (
    Comparison,
    StudySummary,
    compare,
    distinct_labels,
    shared_charts,
    summarise,
)
from ffmem.store.folder import StudyFolder

STUDIES_BESIDE = 12  # that a page without a second study names


@lru_cache(maxsize=2)
def summaries(context: StudyContext) -> tuple[StudySummary, ...]:
    """This study and those that it is compared with; finished studies stay as they are."""
    return tuple(map(summarise, (context.study, *context.others)))


def studies_beside(context: StudyContext) -> list[Path]:
    """Folders that this study could be compared with: its controls, and scans in the same place."""
    root = context.folder
    if is_remote(root):
        return []
    try:
        places = [*root.iterdir(), *root.resolve().parent.iterdir()]
        scans = [one for one in places if StudyFolder(one).manifest.is_file()]
    except OSError:  # a place that may not be listed
        return []
    return sorted(one for one in scans if one.resolve() != root.resolve())[:STUDIES_BESIDE]


@lru_cache(maxsize=2)
def comparison(context: StudyContext) -> Comparison:
    """Studies side by side; empty where the explorer was opened with one study only."""
    return compare(summaries(context)) if context.others else Comparison((), ())


def claims_by_name(context: StudyContext, names: Sequence[str]) -> tuple[Verdict, ...]:
    """Some claims with this study's numbers."""
    return tuple(one for one in context.study.verdicts if one.name in names)


@lru_cache(maxsize=4)
def _drift_of(
    context: StudyContext, other: Study, match: bool, model: LanguageModel | None
) -> Drift | Matching:
    """The comparison with another study, by the weights too with a model; seconds, so it stays."""

    def models(own: LanguageModel) -> tuple[LanguageModel, LanguageModel]:
        from ffmem.analyses.inputs.study_inputs import scanned_model  # here: torch imports slowly

        return own, scanned_model(other.store)

    read = None if model is None else partial(models, model)
    return compare_memories(context.store, other.store, match, read)


def memory_rows(  # noqa: PLR0913 - one parameter a thing to choose
    context: StudyContext,
    place: int,
    match: bool,
    layer: int | None,
    rows: slice,
    model: LanguageModel | None = None,
) -> MemoryComparison:
    """This study's memories beside those of another, by its place among the others from 0.

    With this study's `model` the directions of keys and values are compared too.
    """
    if place >= len(context.others):
        raise AddressError(
            f"the explorer was opened with {len(context.others)} other studies; open it with "
            "`--with DIR` and name one"
        )
    first, second = distinct_labels([context.study, context.others[place]])
    found = _drift_of(context, context.others[place], match, model)
    return comparison_rows(found, (first, second), layer, rows)


@lru_cache(maxsize=2)
def comparison_charts(context: StudyContext) -> dict[str, dict[str, Any]]:
    """The figures of all studies side by side, as Vega-Lite specifications by name."""
    return shared_charts(summaries(context)) if context.others else {}


@lru_cache(maxsize=64)
def comparison_picture(context: StudyContext, name: str) -> str | None:
    """The same as SVG; drawing takes a moment, so it is kept."""
    chart = comparison_charts(context).get(name)
    return None if chart is None else picture(on_white(chart))


def on_white(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart on its own ground, because its ink is dark on a dark page too."""
    return spec | {"background": "white"}
