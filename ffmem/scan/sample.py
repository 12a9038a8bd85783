"""A random sample of what fires each cell, as a value that can be merged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.scan.candidates import Candidates, slots_of, tabled
from ffmem.scan.places import EMPTY, NO_PRIORITY, POSITIONS, priorities
from ffmem.scan.settings import ScanSettings


@dataclass(frozen=True)
class Sample:
    """Triggers drawn uniformly from all that fire a cell; each field is [cells, size].

    What may be drawn is what competes for the strongest triggers (before any `dedupe`): one prefix
    per sentence, or all of them. Each sentence (or place) has one random priority, a hash of its
    number and the seed, and a cell keeps those of the smallest priorities among its own. So each
    cell's sample is uniform and without repeats, it does not depend on the order of reading, and
    `merge` is exact; but cells share the priorities, so samples of two cells tend to hold the
    same sentences. Unfilled slots have coefficient 0, place EMPTY and priority NO_PRIORITY.
    """

    coefficients: Tensor
    places: Tensor
    priorities: Tensor

    @classmethod
    def empty(cls, cells: int, size: int, device: torch.device | str = "cpu") -> Sample:
        """Nothing drawn yet."""
        return cls(
            torch.zeros(cells, size, device=device),
            torch.full((cells, size), EMPTY, device=device),
            torch.full((cells, size), NO_PRIORITY, dtype=torch.int32, device=device),
        )

    @classmethod
    def of(cls, found: Candidates, cells: int, settings: ScanSettings) -> Sample:
        """A sample of loose candidates in order of place, however many a cell."""
        priority = place_priorities(found.places, settings)
        order = (found.cells.long() << 32 | priority.long()).argsort(stable=True)
        slots = slots_of(found.cells[order], cells, settings.sample)
        blank = cls.empty(cells, settings.sample, found.places.device)
        drawn = (found.coefficients[order], found.places[order], priority[order])
        pairs = zip(drawn, blank.fields, strict=True)
        return cls(*(tabled(entries, slots, into) for entries, into in pairs))

    @property
    def fields(self) -> list[Tensor]:
        """The tensors."""
        return [self.coefficients, self.places, self.priorities]

    def merge(self, other: Sample) -> Sample:
        """A sample of both sides' populations, which must share no sentence and one seed."""
        if self.places.shape != other.places.shape:
            raise ValueError(
                f"samples of {list(self.places.shape)} and {list(other.places.shape)} do not merge"
            )
        both = [torch.cat(pair, dim=1) for pair in zip(self.fields, other.fields, strict=True)]
        by_place = both[1].argsort(dim=1)
        by_priority = both[2].gather(1, by_place).argsort(dim=1, stable=True)
        first = by_place.gather(1, by_priority)[:, : self.places.shape[1]]
        return Sample(*(field.gather(1, first) for field in both))

    def to(self, device: torch.device | str) -> Sample:
        """The same sample on another device."""
        return Sample(*(field.to(device) for field in self.fields))


def place_priorities(places: Tensor, settings: ScanSettings) -> Tensor:
    """Each place's priority: its sentence's, or its own where every prefix competes."""
    drawn = places if settings.per_sentence == "all" else places // POSITIONS
    return priorities(drawn, settings.seed)
