"""Effects that claims rest on: differences whose intervals resample whole sentences or whole keys.

An effect is larger, the more it is as the paper says; the claim says which bar it must pass. Rows
are units of their own, or `units` [row] says which are of one unit, and are resampled together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ffmem.analyses.statistics import SHARE, Interval, lower_and_upper, resample, sum_by_unit


def with_count(*columns: Tensor, units: Tensor | None = None) -> Tensor:
    """Columns [row] or [row, number] side by side, and a last one that counts rows, by unit."""
    table = side_by_side(*columns)
    table = torch.cat([table, torch.ones(len(table), 1, dtype=torch.float64)], dim=1)
    return table if units is None else sum_by_unit(table, units)


def side_by_side(*columns: Tensor) -> Tensor:
    """Columns [row] or [row, number] as one table [row, number]."""
    return torch.cat([_as_columns(one) for one in columns], dim=1)


def _as_columns(numbers: Tensor) -> Tensor:
    """[row] or [row, number] as [row, number]."""
    return numbers.double() if numbers.dim() > 1 else numbers.double()[:, None]


def mean_effect(numbers: Tensor, units: Tensor | None = None) -> Interval:
    """The mean over rows [row]."""
    return resample(with_count(numbers, units=units), lambda sums: sums[..., 0] / sums[..., 1])


def gain_with_depth(numbers: Tensor, depth: Tensor) -> Interval:
    """The gain from the lowest layer, 0, to the highest on the line through all units [unit]."""
    at = depth.double() / depth.max()

    def slope(sums: Tensor) -> Tensor:
        x, xx, y, xy, count = sums.unbind(dim=-1)
        return (count * xy - x * y) / (count * xx - x * x)

    return resample(with_count(at, at * at, numbers, at * numbers), slope, largest=None)


def share_effect(tallies: Tensor) -> Interval:
    """A part of a whole, which are the first two columns of [unit, number]."""
    return resample(tallies, lambda sums: sums[..., 0] / sums[..., 1], bounds=SHARE)


def ratio_effect(part: Tensor, whole: Tensor, units: Tensor | None = None) -> Interval:
    """A sum of counts over another that has them all, both [row] or [row, layer]."""
    table = side_by_side(*(_as_columns(one).sum(dim=1) for one in (part, whole)))
    return share_effect(table if units is None else sum_by_unit(table, units))


def lowest_layer_effect(shares: Tensor, units: Tensor | None = None) -> Interval:
    """The mean over prefixes of the layer where it is lowest, from shares [prefix, layer]."""
    if not shares.shape[1]:
        return resample(shares[:0], lambda sums: sums)
    return resample(
        with_count(shares, units=units),
        lambda sums: (sums[..., :-1] / sums[..., -1:]).min(dim=-1).values,
        bounds=SHARE,
    )


def by_depth(tallies: Tensor, is_upper: Tensor) -> Tensor:
    """Tallies [unit, number] as [unit, 2 * number]: in the first half of lower units only."""
    upper = is_upper.double()[:, None]
    return torch.cat([tallies.double() * (1 - upper), tallies.double() * upper], dim=1)


def layers_by_depth(layers: Sequence[Tensor]) -> Tensor:
    """The same from the tallies of each layer."""
    lower, upper = (torch.cat(part) for part in lower_and_upper(layers))
    is_upper = torch.cat([torch.zeros(len(lower)), torch.ones(len(upper))])
    return by_depth(torch.cat([lower, upper]), is_upper)
