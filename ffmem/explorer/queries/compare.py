"""This study beside others: the same claims, the same figures on the same scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ffmem.analyses.statistics import Interval
from ffmem.explorer.context import StudyContext
from ffmem.explorer.html_fragments import finite_or_none
from ffmem.figures.saving import picture
from ffmem.report.build import judge
from ffmem.report.comparison import Comparison, SharedFigure, compare
from ffmem.report.verdicts import Verdict, interval_text


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
def comparison(explored: StudyContext) -> Comparison | None:
    """The comparison, or None where there is nothing to compare with; finished studies stay."""
    return compare([explored.study, *explored.others]) if explored.others else None


def compare_view(explored: StudyContext) -> CompareView:
    """What the page shows."""
    found = comparison(explored)
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
def verdicts(explored: StudyContext) -> tuple[Verdict, ...]:
    """Every claim's verdict in this study; judged once, as results are read once."""
    return tuple(judge(explored.study))


def claims_named(explored: StudyContext, names: Sequence[str]) -> tuple[ClaimComparison, ...]:
    """Some claims with this study's numbers."""
    return tuple(compare_claim((one,)) for one in verdicts(explored) if one.name in names)


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


def compare_figure(explored: StudyContext, name: str) -> SharedFigure | None:
    """One figure of all studies side by side."""
    found = comparison(explored)
    return next((one for one in found.figures if one.name == name), None) if found else None


@lru_cache(maxsize=64)
def comparison_picture(explored: StudyContext, name: str) -> str | None:
    """The same as SVG; drawing takes a moment, so it is kept."""
    figure = compare_figure(explored, name)
    return None if figure is None else picture(on_white(figure.spec))


def on_white(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart on its own ground, because its ink is dark on a dark page too."""
    return spec | {"background": "white"}
