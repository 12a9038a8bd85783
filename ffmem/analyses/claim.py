"""What a claim is: the paper's words, and the rule that finds in a study's results what decides it.

And a claim's numbers as a person reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ffmem.analyses.statistics import Interval, chance_at_least, chance_at_most

R = TypeVar("R")  # the record of an analysis
Unit = Literal["share", "number", "change", "rank"]
Source = Literal["paper", "conjecture", "own"]  # who says it; only the paper's are counted as such
FEWEST = 20  # prefixes or keys below which no interval is believed
BLIND = "compared with the blind controls that the same reader judged"  # not with a model's


@dataclass(frozen=True)
class Effect:
    """A number or difference above zero that must lie above its bar, by prefix or by key."""

    name: str
    found: Interval
    bar: float = 0.0

    @property
    def chance(self) -> float:
        """The p-value that it is not above the bar."""
        return 1.0 if self.found.n < FEWEST else chance_at_most(self.found, self.bar)

    @property
    def chance_of_less(self) -> float:
        """The p-value that it is not below the bar."""
        return 1.0 if self.found.n < FEWEST else chance_at_least(self.found, self.bar)


@dataclass(frozen=True)
class Finding:
    """A claim's number in this study, its control, and the effects that decide.

    Every effect must lie above its bar, and the first above that of untrained models. `alone` says
    why the bars alone decide, and `reason` why nothing can be decided, where that is so; `awaits`
    says who then could. `same_judge` is the same in keys of permuted weights, where whoever judged
    this has judged those too: it stands for the controls. `whole` says that all there is was read.
    """

    number: Interval
    control: Interval | None
    against: str  # what the control is
    effects: tuple[Effect, ...] = ()
    detail: str = ""
    reason: str = ""
    same_judge: Finding | None = None
    alone: str = ""
    awaits: str = ""
    whole: bool = False


Results = Mapping[str, Any]  # by name of analysis


@dataclass(frozen=True)
class Claim(Generic[R]):
    """One claim: the paper's words and number, and the rule that decides it by computation."""

    name: str
    analysis: str  # that answers it, and in whose chapter it stands
    says: str
    paper: str
    unit: Unit
    holds_if: str
    source: Source
    check: Callable[[R], Finding]
    figure: str = ""  # of the analysis, that shows it

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses that answer it."""
        return (self.analysis,)

    def find(self, results: Results) -> Finding | None:
        """The finding in these results; None where the analysis has none."""
        found = results.get(self.analysis)
        return None if found is None else self.check(found)


@dataclass(frozen=True)
class JointClaim:
    """A claim that two others decide together; it stands in the chapter of the first."""

    name: str
    says: str
    paper: str
    unit: Unit
    holds_if: str
    source: Source
    first: Claim[Any]
    second: Claim[Any]
    join: Callable[[Finding, Finding], Finding]
    figure: str = ""

    @property
    def analysis(self) -> str:
        """The analysis in whose chapter it stands."""
        return self.first.analysis

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses that answer it."""
        return (self.first.analysis, self.second.analysis)

    def find(self, results: Results) -> Finding | None:
        """The finding in these results; None where one of the analyses has none."""
        one, other = self.first.find(results), self.second.find(results)
        return None if one is None or other is None else self.join(one, other)


AnyClaim = Claim[Any] | JointClaim


def claim(  # noqa: PLR0913 - the columns of a table of claims
    analysis: str,
    paper: str,
    unit: Unit,
    holds_if: str,
    source: Source = "paper",
    figure: str = "",
) -> Callable[[Callable[[R], Finding]], Claim[R]]:
    """Make a claim of a function that decides it: its docstring is the claim, its name the name."""

    def make(check: Callable[[R], Finding]) -> Claim[R]:
        name, says = check.__name__.replace("_", "-"), check.__doc__ or ""
        return Claim(name, analysis, says, paper, unit, holds_if, source, check, figure)

    return make


def joint_claim(
    first: Claim[Any], second: Claim[Any], paper: str, unit: Unit, holds_if: str
) -> Callable[[Callable[[Finding, Finding], Finding]], JointClaim]:
    """The same for a claim of the paper that a function decides from the findings of two."""

    def make(join: Callable[[Finding, Finding], Finding]) -> JointClaim:
        name, says = join.__name__.replace("_", "-"), join.__doc__ or ""
        return JointClaim(name, says, paper, unit, holds_if, "paper", first, second, join)

    return make


def interval_text(number: Interval | None, unit: Unit, interval: bool = True) -> str:
    """An interval as a person reads it: `3.5 % (3.1 .. 3.9, n = 4,096)`."""
    if number is None or math.isnan(number.estimate):
        return "–"
    scale, end = (100, " %") if unit in ("share", "rank") else (1, " %" if unit == "change" else "")
    value = f"{_number_text(scale * number.estimate)}{end}"
    if not interval:
        return value
    high = min(number.high, 1.0) if unit == "share" else number.high  # no share is above 100 %
    ends = (
        ""
        if math.isnan(number.low) or number.low == number.high  # counted, not estimated
        else " .. ".join(_number_text(scale * one) for one in (number.low, high)) + ", "
    )
    return f"{value} ({ends}n\u00a0=\u00a0{number.n:,})"


def _number_text(value: float) -> str:
    """More places for small numbers, so that 0.04 does not become 0.0."""
    places = 1 if abs(value) >= 1 else 2
    return f"{round(value, places) + 0.0:.{places}f}"


def exact(value: float, n: int) -> Interval:
    """A number that was counted, not estimated from a sample of itself."""
    return Interval(value, math.nan, math.nan, n)


def up_to(end: float, number: Interval) -> Interval:
    """How far a number lies below an end."""
    return Interval(end - number.estimate, end - number.high, end - number.low, number.n)


def share_text(share: float) -> str:
    """A share as a person reads it: `3.5 %`."""
    return interval_text(exact(share, 0), "share", interval=False)


def points_text(more: Interval) -> str:
    """A difference of shares with its interval."""
    return f"{100 * more.estimate:+.1f} points ({100 * more.low:.1f} .. {100 * more.high:.1f})"
