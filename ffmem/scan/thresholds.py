"""Entry thresholds: what a candidate must beat to enter a layer's state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.scan.sample import Sample
from ffmem.scan.triggers import Triggers


@dataclass(frozen=True)
class Thresholds:
    """The last slots of some cells, each [cells].

    A newcomer enters the triggers with a coefficient above `coefficients`, or equal and a place
    before `places`; it enters the sample, if it fires, with a priority up to `priorities`.
    """

    coefficients: Tensor
    places: Tensor
    priorities: Tensor

    @classmethod
    def of(cls, triggers: Triggers, sample: Sample) -> Thresholds:
        """The last slot of each cell, which is free for all that fire while it is unfilled."""
        if sample.places.shape[1]:
            last = sample.priorities[:, -1].contiguous()
        else:
            last = torch.full_like(triggers.places[:, -1], -1, dtype=torch.int32)
        return cls(
            triggers.coefficients[:, -1].contiguous(), triggers.places[:, -1].contiguous(), last
        )

    @property
    def below(self) -> Tensor:
        """The largest numbers that do not reach `coefficients`; 0 where any that fires does."""
        return torch.nextafter(self.coefficients, torch.zeros_like(self.coefficients))

    def at(self, cells: Tensor | slice) -> Thresholds:
        """The bars of some cells."""
        return Thresholds(self.coefficients[cells], self.places[cells], self.priorities[cells])
