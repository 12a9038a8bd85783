"""Confidence intervals of means and shares, and quantiles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

T = TypeVar("T")
PAPER_LAYERS = 16
UPPER = 6 / PAPER_LAYERS  # the paper's layers 11 to 16, as a share of the depth
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LEVEL = 0.95  # of every interval
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
REACH = NormalDist().inv_cdf(TAILS[1])  # deviations from the middle of a normal interval to its end
BOOTSTRAPS = 1000  # rounds of a bootstrap that a figure shows
_RESAMPLE_SIZE = 1 << 22  # numbers held while resampling
_BOOTSTRAP_SIZE = 1 << 16  # draws of a bootstrap held, which a core's cache has room for
MOST_UNITS = 2048  # that a bootstrap draws: a layer of a large model has ten times as many keys


@dataclass(frozen=True)
class Interval:
    """An estimate from `n` observations with its confidence interval."""

    estimate: float
    low: float
    high: float
    n: int

    def fields(self, name: str, cases: str = "n") -> dict[str, Any]:
        """What a figure's row has of it: the estimate under a name, the interval, the cases."""
        return {name: self.estimate, "low": self.low, "high": self.high, cases: self.n}


def quantiles(numbers: Tensor | NDArray[Any]) -> tuple[float, ...]:
    """Quantiles at 5, 25, 50, 75, 95 %, or NaN; torch.quantile refuses over 16 million numbers."""
    if not len(numbers):
        return (float("nan"),) * len(QUANTILES)
    return tuple(float(one) for one in np.quantile(np.asarray(numbers), QUANTILES))


def bootstrap(values: Tensor, generator: torch.Generator, rounds: int = BOOTSTRAPS) -> Interval:
    """The mean and its percentile interval, resampling the first axis.

    With very many observations, random groups of them are resampled, which are independent too.
    Without observations the result is NaN, so that a missing number never looks like a zero.
    """
    import torch  # here: intervals are read without it

    values = values.double().reshape(len(values), -1).mean(dim=1) if values.numel() else values
    count = len(values)
    if count == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    sums, units = values, min(count, MOST_UNITS)
    if count > units:
        group = torch.randperm(count, generator=generator) % units
        sums = values.new_zeros(units).index_add(0, group, values)
    size, larger = divmod(count, units)  # so many groups, the first, have one observation more
    means, at_once = [], max(1, _BOOTSTRAP_SIZE // units)
    for start in range(0, rounds, at_once):
        drawn = torch.randint(units, (min(at_once, rounds - start), units), generator=generator)
        drawn_sums = sums.index_select(0, drawn.flatten()).view_as(drawn).sum(dim=1)
        more = torch.from_numpy(np.count_nonzero(drawn.numpy() < larger, axis=1))
        means.append(drawn_sums / (units * size + more))
    low, high = torch.cat(means).quantile(torch.tensor(TAILS, dtype=torch.double)).tolist()
    return Interval(float(values.mean()), low, high, count)


def wilson(successes: int, trials: int) -> Interval:
    """The share of successes with Wilson's score interval, which is valid near 0 and 1 too."""
    if trials == 0:
        return Interval(float("nan"), 0.0, 1.0, 0)
    return Interval(successes / trials, *_wilson_ends(successes / trials, trials), trials)


def _wilson_ends(share: float, trials: float) -> tuple[float, float]:
    """Where the interval of a share begins and ends."""
    weight = REACH * REACH / trials
    middle = (share + weight / 2) / (1 + weight)
    reach = REACH / (1 + weight) * (share * (1 - share) / trials + weight / (4 * trials)) ** 0.5
    low = 0.0 if share == 0 else max(0.0, middle - reach)
    return low, 1.0 if share == 1 else min(1.0, middle + reach)


def share_of(flags: Tensor, units: Tensor | None = None) -> Interval:
    """The share of flags that are set.

    `units` [flag] says which flags are of one unit, and alike: the interval is Wilson's of as many
    flags as would vary so much if they were independent, as many as units where none varies.
    """
    if units is None or not len(flags):
        return wilson(int(flags.sum()), flags.numel())
    numbers = per_unit(flags.double(), units)
    share, count = float(flags.double().mean()), len(numbers)
    one, spread = share * (1 - share), float((numbers - share).square().sum()) / count**2
    varies = spread > 1e-9 * one  # beyond rounding
    return Interval(share, *_wilson_ends(share, one / spread if varies else count), count)


def per_unit(numbers: Tensor, units: Tensor) -> Tensor:
    """One number of each unit; their mean is that of all numbers, their error what units leave.

    `units` [number] says which numbers are of one unit. A unit with more of them weighs more.
    """
    import torch  # here: intervals are read without it

    if not len(numbers):
        return numbers
    table = torch.stack([numbers.double(), torch.ones(len(numbers)).double()], dim=1)
    sums, counts = sum_by_unit(table, units.unique(return_inverse=True)[1]).unbind(dim=1)
    mean = sums.sum() / counts.sum()
    return mean + (sums - mean * counts) / counts.mean()


def sum_by_unit(table: Tensor, units: Tensor) -> Tensor:
    """[unit, number]: the sums of rows [row, number]; `units` [row] are numbered from 0 on."""
    return table.new_zeros(int(units.max()) + 1, table.shape[1]).index_add(0, units, table)


def pool_by_key(sums: Tensor, counts: Tensor, generator: torch.Generator) -> Interval:
    """The sum of `sums` over the sum of `counts`, both [key]; whole keys are resampled.

    Triggers of one key are alike, so resampling triggers would give too narrow an interval.
    Keys without a trigger are left out.
    """
    import torch  # here: intervals are read without it

    there = counts > 0
    sums, counts = sums[there].double(), counts[there].double()
    if not len(sums):
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    drawn = torch.randint(len(sums), (BOOTSTRAPS, len(sums)), generator=generator)
    means = sums[drawn].sum(dim=1) / counts[drawn].sum(dim=1)
    low, high = means.quantile(torch.tensor(TAILS).double())
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high), len(sums))


RESAMPLES = 2000  # rounds of a bootstrap that a verdict rests on
RULE_OF_THREE = 3  # units that can all be missed with a chance of 5 % per n: the rule of three
SHARE = (0.0, 1.0)  # what no share lies outside of


def resample(
    tallies: Tensor,
    statistic: Callable[[Tensor], Tensor],
    largest: float | None = 1.0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """A statistic of sums over units, and its percentile interval when whole units are resampled.

    `tallies` [unit, number] has one row of counts per independent unit, a prefix or a key, so
    comparisons within a unit stay paired. `statistic` turns sums [..., number] into one number.
    An interval is at least as wide as three more units, each `largest` away, would make it: a
    sample without exceptions does not prove that there are none. `largest` None stands for the
    largest deviation of a unit that was seen. None leaves the `bounds` of what
    is estimated. Rows of zeros are units without counts, and are left out. The draws depend only on
    the number of units, so equal tallies give equal intervals.
    """
    return Resamples(tallies).interval(statistic, largest, bounds)


class Resamples:
    """Units that are resampled once, for all statistics of their sums; see `resample`."""

    def __init__(self, tallies: Tensor, rounds: int = RESAMPLES) -> None:
        self.tallies = tallies[(tallies != 0).any(dim=1)].double()
        self.rounds = rounds

    @cached_property
    def sums(self) -> Tensor:
        """[round, number]: the sums over the units that each round has drawn."""
        import torch  # here: intervals are read without it

        count, (kinds, times) = len(self.tallies), distinct_rows(self.tallies.numpy())
        draw, parts = np.random.default_rng(count), []
        at_once = max(1, _RESAMPLE_SIZE // len(kinds))
        for start in range(0, self.rounds, at_once):
            size = min(at_once, self.rounds - start)
            weights = draw.multinomial(count, times / count, size=size).astype(np.float64)
            parts.append(torch.from_numpy(weights @ kinds))
        return torch.cat(parts)

    def interval(
        self,
        statistic: Callable[[Tensor], Tensor],
        largest: float | None = 1.0,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> Interval:
        """The statistic and its percentile interval."""
        count = len(self.tallies)
        if count == 0:
            return Interval(float("nan"), float("nan"), float("nan"), 0)
        estimate = float(statistic(self.tallies.sum(dim=0)))
        if np.isnan(estimate):
            return Interval(estimate, estimate, estimate, count)
        found = statistic(self.sums).numpy()
        low, high = np.nanquantile(found, TAILS)
        reach = RULE_OF_THREE * (self._influence(statistic) if largest is None else largest / count)
        low, high = np.clip([min(low, estimate - reach), max(high, estimate + reach)], *bounds)
        return Interval(estimate, float(low), float(high), count)

    def _influence(self, statistic: Callable[[Tensor], Tensor]) -> float:
        """By how much the statistic changes at most when one unit is left out."""
        every = self.tallies.sum(dim=0)
        changes = np.abs(statistic(every - self.tallies).numpy() - float(statistic(every)))
        known = changes[~np.isnan(changes)]  # none where too few units are left for the statistic
        return float(known.max()) if len(known) else 0.0


def distinct_rows(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The different rows of a table in lexical order, and how often each occurs.

    As numpy's `unique` along an axis, which takes eight times as long for a million short rows.
    """
    ordered = table[np.lexsort(table.T[::-1])]
    is_first = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    starts = np.flatnonzero(is_first)
    return ordered[starts], np.diff(starts, append=len(table))


def difference(one: Interval, other: Interval) -> Interval:
    """`one` - `other` for independent samples; half-widths of intervals add in quadrature."""
    middle = one.estimate - other.estimate
    down = ((one.estimate - one.low) ** 2 + (other.high - other.estimate) ** 2) ** 0.5
    up = ((one.high - one.estimate) ** 2 + (other.estimate - other.low) ** 2) ** 0.5
    return Interval(middle, middle - down, middle + up, min(one.n, other.n))


def chance_at_most(found: Interval, bar: float) -> float:
    """The one-sided p-value that the true number is not above `bar`, from an interval's lower end.

    The distance to the lower end is taken as that of a normal distribution.
    """
    if np.isnan(found.estimate) or np.isnan(found.low):
        return 1.0
    if found.estimate <= found.low:  # counted, not estimated
        return 0.0 if found.estimate > bar else 1.0
    spread = (found.estimate - found.low) / REACH
    return 1 - NormalDist().cdf((found.estimate - bar) / spread)


def chance_at_least(found: Interval, bar: float) -> float:
    """The one-sided p-value that the true number is not below `bar`, from the upper end."""
    turned = Interval(-found.estimate, -found.high, -found.low, found.n)
    return chance_at_most(turned, -bar)


T_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 97.5 %, by freedom
# Deviation between seeds where there is one only: a share of the number, and at least its own
# standard error. Three seeds of the demo's permuted weights deviate by up to 11 % beyond their
# intervals, and differences near zero by as much as these (`python -m benchmarks.control_seeds`).
# The mean over fewer than its 16 layers deviates by more: of toys with 3 layers by up to 25 %.
ONE_SEED = 0.15


def beyond_seeds(kinds: Sequence[Sequence[Interval]], layers: int = PAPER_LAYERS) -> list[Interval]:
    """For every kind the mean of its seeds, and the interval in which another seed would lie.

    The deviation of seeds is that of all kinds together, since there are few of each, or that of
    the kind, with its own degrees of freedom, where that reaches further; where no kind has two
    seeds it is taken as a share of the number in so many layers, and at least as its own error.
    Another seed deviates from the mean of known ones by more than from the truth.
    """
    means = [fmean(one.estimate for one in found) for found in kinds]
    freedom = sum(len(found) - 1 for found in kinds)
    squares = [
        sum((one.estimate - mean) ** 2 for one in found)
        for found, mean in zip(kinds, means, strict=True)
    ]
    spans = []
    for found, mean, own in zip(kinds, means, squares, strict=True):
        count = len(found)
        down, up = (
            sum(half**2 for half in halves) ** 0.5 / count
            for halves in (
                [one.estimate - one.low for one in found],
                [one.high - one.estimate for one in found],
            )
        )
        if freedom:
            deviations = [_deviation(sum(squares), freedom), _deviation(own, count - 1)]
            reach = max(deviations) * (1 + 1 / count) ** 0.5
        else:
            share = ONE_SEED * (PAPER_LAYERS / layers) ** 0.5
            reach = max(REACH * share * abs(mean), (down + up) / 2) * 2**0.5  # of two seeds
        down, up = ((half**2 + reach**2) ** 0.5 for half in (down, up))
        spans.append(Interval(mean, mean - down, mean + up, min(one.n for one in found)))
    return spans


def _deviation(squares: float, freedom: int) -> float:
    """How far 95 % of a normal distribution reach from its mean, of which so many numbers tell."""
    if not freedom:
        return 0.0
    return T_QUANTILES[min(freedom, len(T_QUANTILES)) - 1] * (squares / freedom) ** 0.5


def holm(chances: list[float]) -> list[float]:
    """P-values corrected for multiple tests (Holm), in the order given."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    corrected, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = largest
    return corrected


def lower_and_upper(layers: Sequence[T]) -> tuple[list[T], list[T]]:
    """The paper's layers 1 to 10 and 11 to 16, by their share of the depth."""
    first = len(layers) - max(1, round(UPPER * len(layers)))
    return list(layers[:first]) or list(layers[:1]), list(layers[first:])


def place_of(layer: int, layers: int) -> int:
    """The layer, from 0, of a model with `layers` layers at the depth of one of the paper's 16."""
    return min(layers - 1, max(0, round(layer * layers / PAPER_LAYERS) - 1))


def mean_of_layers(intervals: list[Interval]) -> Interval:
    """The mean of layers that were measured apart, with the error that independence gives."""
    known = [one for one in intervals if one.n]
    if not known:
        return Interval(math.nan, math.nan, math.nan, 0)
    middle = fmean(one.estimate for one in known)
    half = sum(((one.high - one.low) / 2) ** 2 for one in known) ** 0.5 / len(known)
    return Interval(middle, middle - half, middle + half, sum(one.n for one in known))


def cohen_kappa(one: Sequence[str], other: Sequence[str]) -> float:
    """Agreement of two annotators beyond what their own label shares give; nan if undefined."""
    count = len(one)
    same = sum(a == b for a, b in zip(one, other, strict=True)) / count
    first, second = Counter(one), Counter(other)
    chance = sum(first[label] * second[label] for label in first) / count**2
    return (same - chance) / (1 - chance) if chance < 1 else float("nan")
