"""Claims of the paper as functions that decide whether each holds for the studied model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ffmem.analyses.predictive_values import UPPER
from ffmem.analyses.statistics import Interval, wilson

Unit = Literal["share", "number", "change", "rank"]


@dataclass(frozen=True)
class Finding:
    """A claim's number in this study, its control, and the verdict."""

    number: Interval
    control: Interval | None
    against: str  # what the control is
    holds: bool
    detail: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim: the paper's words and number, and the rule that decides it by computation."""

    name: str
    analysis: str  # that answers it
    says: str
    paper: str
    unit: Unit
    holds_if: str
    check: Callable[[Any], Finding]

    def __call__(self, result: Any) -> Finding:
        """Decide the claim by the result of its analysis."""
        return self.check(result)


def claim(
    analysis: str, paper: str, unit: Unit, holds_if: str
) -> Callable[[Callable[[Any], Finding]], Claim]:
    """Make a claim of a function that decides it: its docstring is the claim, its name the name."""

    def make(check: Callable[[Any], Finding]) -> Claim:
        name, says = check.__name__.replace("_", "-"), check.__doc__ or ""
        return Claim(name, analysis, says, paper, unit, holds_if, check)

    return make


@dataclass(frozen=True)
class Verdict:
    """A claim and what was found; no finding where the analysis has no result."""

    name: str
    analysis: str
    says: str
    paper: str
    unit: Unit
    holds_if: str
    finding: Finding | None

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        if self.finding is None:
            return "not measured"
        return "holds" if self.finding.holds else "does not hold"


def judge_claims(claims: Sequence[Claim], results: dict[str, Any]) -> list[Verdict]:
    """Every claim with its finding, from the results by name of analysis."""
    return [
        Verdict(
            claim.name,
            claim.analysis,
            claim.says,
            claim.paper,
            claim.unit,
            claim.holds_if,
            _finding(claim, results.get(claim.analysis)),
        )
        for claim in claims
    ]


def _finding(claim: Claim, result: Any) -> Finding | None:
    """The finding, or none where nothing was measured."""
    if result is None:
        return None
    found = claim.check(result)
    return None if math.isnan(found.number.estimate) else found


def interval_text(number: Interval | None, unit: Unit, interval: bool = True) -> str:
    """An interval as a person reads it: `3.5 % (3.1 .. 3.9, n = 4,096)`."""
    if number is None or math.isnan(number.estimate):
        return "–"
    scale, end = (100, " %") if unit in ("share", "rank") else (1, " %" if unit == "change" else "")
    value = f"{_number_text(scale * number.estimate)}{end}"
    if not interval:
        return value
    ends = (
        ""
        if math.isnan(number.low)
        else " .. ".join(_number_text(scale * one) for one in (number.low, number.high)) + ", "
    )
    return f"{value} ({ends}n\u00a0=\u00a0{number.n:,})"


def _number_text(value: float) -> str:
    """More places for small numbers, so that 0.04 does not become 0.0."""
    places = 1 if abs(value) >= 1 else 2
    return f"{round(value, places) + 0.0:.{places}f}"


def above(one: Interval, other: Interval) -> bool:
    """Whether the whole interval lies above the other one."""
    return one.low > other.high


def pool_layers(intervals: Sequence[Interval]) -> Interval:
    """Shares of several layers as one."""
    trials = sum(one.n for one in intervals)
    return wilson(round(sum(one.estimate * one.n for one in intervals if one.n)), trials)


def exact(value: float, n: int) -> Interval:
    """A number that was counted, not estimated from a sample of itself."""
    return Interval(value, math.nan, math.nan, n)


def lower_and_upper(layers: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The paper's layers 1 to 10 and 11 to 16, by their share of the depth."""
    first = len(layers) - max(1, round(UPPER * len(layers)))
    return list(layers[:first]) or list(layers[:1]), list(layers[first:])
