"""A mean over all triggers, with the interval that comes from drawing other keys."""

from __future__ import annotations

import torch
from torch import Tensor

from ffmem.analyses.statistics import Interval


def pooled(
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
