"""Confidence intervals of means and shares."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

_DRAWN_AT_ONCE = 1 << 22  # numbers held while resampling


@dataclass(frozen=True)
class Interval:
    """An estimate from `n` observations, and where it lies at the level that was asked for."""

    estimate: float
    low: float
    high: float
    n: int


def bootstrap(
    values: Tensor, generator: torch.Generator, rounds: int = 1000, level: float = 0.95
) -> Interval:
    """The mean and its percentile interval, resampling the first axis.

    No observation gives NaN, so that a missing number never looks like a zero.
    """
    values = values.double().reshape(len(values), -1).mean(dim=1) if values.numel() else values
    count = len(values)
    if count == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    means = []
    at_once = max(1, _DRAWN_AT_ONCE // count)
    for start in range(0, rounds, at_once):
        size = (min(at_once, rounds - start), count)
        means.append(values[torch.randint(count, size, generator=generator)].mean(dim=1))
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
    low, high = torch.cat(means).quantile(tails).tolist()
    return Interval(float(values.mean()), low, high, count)


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """The share of successes and Wilson's score interval, which holds near 0 and 1 too."""
    if trials == 0:
        return Interval(float("nan"), 0.0, 1.0, 0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = successes / trials, z * z / trials
    middle = (share + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * (share * (1 - share) / trials + weight / (4 * trials)) ** 0.5
    low = 0.0 if successes == 0 else max(0.0, middle - reach)
    high = 1.0 if successes == trials else min(1.0, middle + reach)
    return Interval(share, low, high, trials)


def pool_by_key(
    sums: Tensor,
    counts: Tensor,
    generator: torch.Generator,
    rounds: int = 1000,
    level: float = 0.95,
) -> Interval:
    """The sum of `sums` over the sum of `counts`, both [key]; whole keys are resampled.

    Triggers of one key are alike, so resampling triggers would give too narrow an interval.
    Keys without a trigger do not count.
    """
    there = counts > 0
    sums, counts = sums[there].double(), counts[there].double()
    if not len(sums):
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    drawn = torch.randint(len(sums), (rounds, len(sums)), generator=generator)
    means = sums[drawn].sum(dim=1) / counts[drawn].sum(dim=1)
    low, high = means.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2]).double())
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high), len(sums))
