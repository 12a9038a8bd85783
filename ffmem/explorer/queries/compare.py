"""This study beside others: the same claims, the same figures on the same scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ffmem.analyses.statistics import Interval
from ffmem.errors import AddressError, ModelError, StoreError
from ffmem.explorer.context import StudyContext
from ffmem.explorer.templating import finite_or_none
from ffmem.figures.saving import picture
from ffmem.models.language_model import LanguageModel
from ffmem.report.comparison import (
    Comparison,
    SharedFigure,
    compare,
    distinct_labels,
    summary_of,
)
from ffmem.report.paper_claims import judge
from ffmem.report.verdicts import Verdict, interval_text
from ffmem.studies.memory_drift import (
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
from ffmem.studies.study import Study


@dataclass(frozen=True)
class StudySide:
    """One side: what was studied."""

    label: str
    about: dict[str, str]


@dataclass(frozen=True)
class ClaimNumber:
    """A claim's number in one study; `number` and `control` are None where it was not measured."""

    verdict: str
    text: str
    number: float | None
    low: float | None
    high: float | None
    n: int
    control: float | None
    against: str
    reason: str  # of the verdict, where it is not plain from the numbers
    control_text: str = "–"


@dataclass(frozen=True)
class ClaimComparison:
    """One claim of the paper, and what each study found, in the order of the studies."""

    name: str
    says: str
    paper: str
    holds_if: str
    found: tuple[ClaimNumber, ...]


@dataclass(frozen=True)
class FigureComparison:
    """A figure that at least two of the studies have."""

    name: str
    title: str
    read: str
    paper: str
    captions: dict[str, str]


@dataclass(frozen=True)
class CompareView:
    """Studies side by side; empty where the explorer was opened with one study only."""

    studies: tuple[StudySide, ...]
    claims: tuple[ClaimComparison, ...]
    figures: tuple[FigureComparison, ...]


@lru_cache(maxsize=2)
def comparison(context: StudyContext) -> Comparison | None:
    """The comparison, or None where there is nothing to compare with; finished studies stay."""
    stores = [context.store, *(other.store for other in context.others)]
    return compare([summary_of(store) for store in stores]) if context.others else None


def compare_view(context: StudyContext) -> CompareView:
    """What the page shows."""
    found = comparison(context)
    if found is None:
        return CompareView((), (), ())
    return CompareView(
        studies=tuple(StudySide(side.label, side.about) for side in found.sides),
        claims=tuple(map(compare_claim, found.claims)),
        figures=tuple(
            FigureComparison(one.name, one.title, one.read, one.paper, one.captions)
            for one in found.figures
        ),
    )


@lru_cache(maxsize=4)
def verdicts(context: StudyContext) -> tuple[Verdict, ...]:
    """Every claim's verdict in this study; judged once, as results are read once."""
    return tuple(judge(context.study))


def claims_by_name(context: StudyContext, names: Sequence[str]) -> tuple[ClaimComparison, ...]:
    """Some claims with this study's numbers."""
    return tuple(compare_claim((one,)) for one in verdicts(context) if one.name in names)


def compare_claim(by_study: tuple[Verdict, ...]) -> ClaimComparison:
    """One claim over all studies."""
    first = by_study[0]
    found = tuple(map(claim_number, by_study))
    return ClaimComparison(first.name, first.says, first.paper, first.holds_if, found)


def claim_number(verdict: Verdict) -> ClaimNumber:
    """One study's number, as numbers and as a person reads it."""
    finding = verdict.finding
    if finding is None:
        return ClaimNumber(verdict.word, "–", None, None, None, 0, None, "", verdict.reason)
    return ClaimNumber(
        verdict=verdict.word,
        text=interval_text(finding.number, verdict.unit),
        number=finite_or_none(finding.number.estimate),
        low=finite_or_none(finding.number.low),
        high=finite_or_none(finding.number.high),
        n=finding.number.n,
        control=control_of(finding.control),
        against=finding.against,
        reason=verdict.reason,
        control_text=interval_text(finding.control, verdict.unit),
    )


def control_of(control: Interval | None) -> float | None:
    """The control that a claim's number is compared with."""
    return None if control is None else finite_or_none(control.estimate)


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
        return weight_drift(context.store, other.store, model)
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
    if layer is not None and layer not in context.store.memories:
        known = ", ".join(map(str, context.store.memories))
        raise AddressError(f"the scan has no layer {layer}; its layers are {known}")
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


def compare_figure(context: StudyContext, name: str) -> SharedFigure | None:
    """One figure of all studies side by side."""
    found = comparison(context)
    return next((one for one in found.figures if one.name == name), None) if found else None


@lru_cache(maxsize=64)
def comparison_picture(context: StudyContext, name: str) -> str | None:
    """The same as SVG; drawing takes a moment, so it is kept."""
    figure = compare_figure(context, name)
    return None if figure is None else picture(on_white(figure.spec))


def on_white(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart on its own ground, because its ink is dark on a dark page too."""
    return spec | {"background": "white"}
