"""A random sample of what fires each cell, as a value that can be merged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.corpus.places import POSITIONS
from ffmem.scan.candidates import Table, row_order
from ffmem.scan.hashing import EMPTY, NO_PRIORITY, priorities
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
        return _smallest_priorities(self.fields, other.fields)

    def take_in(self, found: list[Table], settings: ScanSettings) -> Sample:
        """What merging with a sample of the candidates alone would give."""
        fields = [field.clone() for field in self.fields]
        for table in found:
            coefficients, places = table.fields[:2]
            drawn = place_priorities(places, settings).masked_fill_(places == EMPTY, NO_PRIORITY)
            ours = [field[table.cells] for field in fields]
            new = _smallest_priorities(ours, [coefficients, places, drawn])
            for field, values in zip(fields, new.fields, strict=True):
                field[table.cells] = values
        return Sample(*fields)

    def to(self, device: torch.device | str) -> Sample:
        """The same sample on another device."""
        return Sample(*(field.to(device) for field in self.fields))


def _smallest_priorities(ours: list[Tensor], theirs: list[Tensor]) -> Sample:
    """Those of both sides with the smallest priorities, as many per row as our side has."""
    both = [torch.cat(pair, dim=1) for pair in zip(ours, theirs, strict=True)]
    first = row_order(both[2], both[1])[:, : ours[0].shape[1]]
    return Sample(*(field.gather(1, first) for field in both))


def place_priorities(places: Tensor, settings: ScanSettings) -> Tensor:
    """Each place's priority: its sentence's, or its own where every prefix competes."""
    drawn = places if settings.per_sentence == "all" else places // POSITIONS
    return priorities(drawn, settings.seed)
