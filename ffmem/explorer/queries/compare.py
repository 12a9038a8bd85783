"""This study beside others: the same claims, the same figures on the same scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ffmem.analyses.drift import (
    Drift,
    LayerDrift,
    Matching,
    MemoryDrift,
    MemoryMatch,
    is_one_shape,
    match_memories,
    memory_drift,
    weight_drift,
)
from ffmem.analyses.study import Study
from ffmem.analyses.verdicts import Verdict
from ffmem.errors import AddressError, ModelError, StoreError
from ffmem.explorer.context import StudyContext
from ffmem.figures.saving import picture
from ffmem.models.language_model import LanguageModel
from ffmem.report.build import summarise
from ffmem.report.comparison import (
    Comparison,
    StudySummary,
    compare,
    distinct_labels,
    shared_charts,
)


@lru_cache(maxsize=2)
def summaries(context: StudyContext) -> tuple[StudySummary, ...]:
    """This study and those that it is compared with; finished studies stay as they are."""
    return tuple(map(summarise, (context.study, *context.others)))


@lru_cache(maxsize=2)
def comparison(context: StudyContext) -> Comparison:
    """Studies side by side; empty where the explorer was opened with one study only."""
    return compare(summaries(context)) if context.others else Comparison((), ())


def claims_by_name(context: StudyContext, names: Sequence[str]) -> tuple[Verdict, ...]:
    """Some claims with this study's numbers."""
    return tuple(one for one in context.study.verdicts if one.name in names)


@dataclass(frozen=True)
class MemoriesView:
    """Two scans memory by memory: `drifts` of one shape, or `matches` by triggers of one text."""

    first: str
    second: str
    total: int
    start: int  # number of the first row, from 0
    layers: tuple[LayerDrift, ...]
    drifts: tuple[MemoryDrift, ...]
    matches: tuple[MemoryMatch, ...]
    share: float | None  # of memories with a match above the control's bar
    bar: float | None
    why_not: str  # one sentence, where neither is possible
    no_keys: str = ""  # one sentence, where a model that was to be read is not there


@lru_cache(maxsize=4)
def drift_of(
    context: StudyContext, other: Study, match: bool, model: LanguageModel | None
) -> Drift | Matching:
    """The comparison with another study, by the weights too with a model; seconds, so it stays."""
    if match or not is_one_shape(context.store, other.store):
        return match_memories(context.store, other.store)
    if model is not None:
        from ffmem.analyses.inputs.study_inputs import scanned_model  # here: torch imports slowly

        return weight_drift(context.store, other.store, (model, scanned_model(other.store)))
    return memory_drift(context.store, other.store)


def memories_view(  # noqa: PLR0913 - one parameter a thing to choose
    context: StudyContext,
    place: int,
    match: bool,
    layer: int | None,
    rows: slice,
    model: LanguageModel | None = None,
) -> MemoriesView:
    """This study's memories beside those of another, by its place among the others from 0.

    With this study's `model` the directions of keys and values are compared too.
    """
    if place >= len(context.others):
        raise AddressError(
            f"the explorer was opened with {len(context.others)} other studies; open it with "
            "`--with DIR` and name one"
        )
    if layer is not None:
        context.store.cells.check_layer(layer)
    first, second = distinct_labels([context.study, context.others[place]])
    try:
        found = drift_of(context, context.others[place], match, model)
    except (StoreError, ModelError) as error:  # no common text, or a model that is not there
        if model is not None and isinstance(error, ModelError):
            return replace(memories_view(context, place, match, layer, rows), no_keys=str(error))
        return MemoriesView(first, second, 0, 0, (), (), (), None, None, str(error))
    order = found.order(layer)
    head = (first, second, len(order), rows.start)
    if isinstance(found, Drift):
        return MemoriesView(*head, found.layers, found.table(order[rows]), (), None, None, "")
    return MemoriesView(*head, (), (), found.table(order[rows]), found.share, found.bar, "")


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
