"""Counts and sums of every cell, as a value that can be merged."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from ffmem.errors import ScanError
from ffmem.scan.settings import BINS, UNIT


@dataclass(frozen=True)
class Tallies:
    """How often and how strongly every cell fired, over all admissible prefixes.

    Per cell ([cells]): `fires`, the prefixes with a coefficient above zero (int64); `totals`, the
    sum of those coefficients in steps of UNIT (int64); `largest` of them (float32, 0 if none).
    For all cells: `prefixes` read. Sums within a batch are floats, rounded once to whole steps;
    from there on all is integers, so `merge` is exact and exactly associative. Coefficients that
    sum to 2**39 or more overflow `totals`. In a mixture, per expert: `routed`, the prefixes for
    which it was chosen (int64), and `weights`, the sum of the router's weights there in steps of
    UNIT (int64); None before anything is read.
    `histogram` [cells, BINS] (int64) counts the coefficients above zero of the sentences in the
    census (`census_factors`), each as often as its sentence stands for others.
    """

    fires: Tensor
    totals: Tensor
    largest: Tensor
    prefixes: int
    histogram: Tensor
    routed: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def empty(cls, cells: int, device: torch.device | str = "cpu") -> Tallies:
        """Nothing read yet."""
        zeros = torch.zeros(cells, dtype=torch.int64, device=device)
        histogram = torch.zeros(cells, BINS, dtype=torch.int64, device=device)
        largest = torch.zeros(cells, device=device)
        return cls(zeros, zeros.clone(), largest, 0, histogram)

    def merge(self, other: Tallies) -> Tallies:
        """What reading both sides' prefixes gives."""
        return Tallies(
            self.fires + other.fires,
            self.totals + other.totals,
            torch.maximum(self.largest, other.largest),
            self.prefixes + other.prefixes,
            self.histogram + other.histogram,
            _sum(self.routed, other.routed),
            _sum(self.weights, other.weights),
        )

    def to(self, device: torch.device | str) -> Tallies:
        """The same tallies on another device."""
        fires, totals, largest = (t.to(device) for t in (self.fires, self.totals, self.largest))
        routing = (None if t is None else t.to(device) for t in (self.routed, self.weights))
        histogram = self.histogram.to(device)
        return Tallies(fires, totals, largest, self.prefixes, histogram, *routing)


def steps_of(sums: Tensor) -> Tensor:
    """Sums of coefficients (float64) as whole steps of UNIT; refuses what is not a number."""
    if not isfinite(sums.sum().item()):
        raise not_finite()
    return (sums / UNIT).round_().long()


def not_finite() -> ScanError:
    """The error for a model whose coefficients overflow."""
    return ScanError(
        "the model gives coefficients that are infinite or not a number; "
        "run it in bfloat16 or float32"
    )


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other
