"""Intervals around a mean, by resampling, and around a share."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor


@dataclass(frozen=True)
class Interval:
    """An estimate with the interval around it and the number of things it rests on."""

    estimate: float
    low: float
    high: float
    n: int


def bootstrap(
    values: Tensor, generator: torch.Generator, rounds: int = 1000, level: float = 0.95
) -> Interval:
    """The mean of `values` over the first axis, with a percentile interval by resampling it."""
    flat = values.double().reshape(len(values), -1).mean(dim=1) if len(values) else values.double()
    if not len(flat):
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    drawn = torch.randint(len(flat), (rounds, len(flat)), generator=generator)
    means = flat[drawn].mean(dim=1)
    low, high = means.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2]).double())
    return Interval(float(flat.mean()), float(low), float(high), len(flat))


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """The share of successes with Wilson's interval, which holds for few trials too."""
    if not trials:
        return Interval(float("nan"), 0.0, 1.0, 0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = successes / trials, z * z / trials
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (share * (1 - share) / trials + weight / (4 * trials)) ** 0.5
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half), trials)
