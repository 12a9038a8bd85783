"""The strongest triggers of every cell, as a value that can be merged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.scan.candidates import Candidates, slots_of, tabled
from ffmem.scan.places import EMPTY


@dataclass(frozen=True)
class Triggers:
    """The k strongest triggers of every cell, strongest first; each field is [cells, k].

    Order is by coefficient (float32) descending, equals by place ascending; only coefficients
    above zero enter. An unfilled slot has coefficient 0 and place EMPTY, and comes last. With
    `groups` (int64) a cell keeps one trigger of each group, the first in this order. `merge` is
    associative and commutative to the bit, so shards may finish in any order.
    """

    coefficients: Tensor
    places: Tensor
    groups: Tensor | None = None

    @classmethod
    def empty(
        cls, cells: int, k: int, grouped: bool = False, device: torch.device | str = "cpu"
    ) -> Triggers:
        """No trigger yet."""
        return cls(
            torch.zeros(cells, k, device=device),
            torch.full((cells, k), EMPTY, device=device),
            torch.zeros(cells, k, dtype=torch.int64, device=device) if grouped else None,
        )

    @classmethod
    def of(cls, found: Candidates, cells: int, k: int) -> Triggers:
        """The strongest of loose candidates in order of place, however many a cell."""
        if found.groups is not None:
            found = _best_of_each_group(found)
        found = found.at((found.cells.long() << 32 | _weakness(found)).argsort(stable=True))
        slots = slots_of(found.cells, cells, k)
        blank = cls.empty(cells, k, found.groups is not None, found.places.device)
        pairs = zip(found.fields[1:], blank.fields, strict=True)
        return cls(*(tabled(entries, slots, into) for entries, into in pairs))

    @property
    def fields(self) -> list[Tensor]:
        """The tensors, groups last if there are any."""
        fields = [self.coefficients, self.places]
        return fields if self.groups is None else [*fields, self.groups]

    @property
    def filled(self) -> Tensor:
        """How many triggers each cell has: [cells]."""
        return (self.places != EMPTY).sum(1)

    def merge(self, other: Triggers) -> Triggers:
        """The strongest of both sides, which must be of one size and share no place."""
        if [t.shape for t in self.fields] != [t.shape for t in other.fields]:
            raise ValueError(
                f"triggers of {list(self.places.shape)} and {list(other.places.shape)} do not "
                "merge, nor do grouped with ungrouped ones"
            )
        both = [torch.cat(pair, dim=1) for pair in zip(self.fields, other.fields, strict=True)]
        by_place = both[1].argsort(dim=1)
        by_strength = both[0].gather(1, by_place).argsort(dim=1, descending=True, stable=True)
        order = by_place.gather(1, by_strength)
        if self.groups is None:
            order = order[:, : self.places.shape[1]]
        merged = Triggers(*(field.gather(1, order) for field in both))
        return merged if self.groups is None else _one_per_group(merged, self.places.shape[1])

    def to(self, device: torch.device | str) -> Triggers:
        """The same triggers on another device."""
        return Triggers(*(field.to(device) for field in self.fields))


def _weakness(found: Candidates) -> Tensor:
    """Smaller for larger coefficients: the bits of positive floats order as the floats do."""
    return 2**31 - found.coefficients.view(torch.int32).long()


def _best_of_each_group(found: Candidates) -> Candidates:
    """One candidate per cell and group, in order of place as they came."""
    assert found.groups is not None
    order = _weakness(found).argsort(stable=True)
    for field in (found.groups, found.cells):
        order = order[field[order].argsort(stable=True)]
    cells, groups = found.cells[order], found.groups[order]
    first = torch.ones_like(cells, dtype=torch.bool)
    first[1:] = (cells[1:] != cells[:-1]) | (groups[1:] != groups[:-1])
    return found.at(order[first].sort().values)


def _one_per_group(ordered: Triggers, k: int) -> Triggers:
    """The first k of each row after every later trigger of a group already met is blanked."""
    assert ordered.groups is not None
    groups, order = ordered.groups.sort(dim=1, stable=True)
    again = torch.zeros_like(groups, dtype=torch.bool)
    again[:, 1:] = groups[:, 1:] == groups[:, :-1]
    repeated = torch.zeros_like(again).scatter(1, order, again) | (ordered.places == EMPTY)
    best = repeated.to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    blank = repeated.gather(1, best)
    fills = (0.0, EMPTY, 0)
    pairs = zip(ordered.fields, fills, strict=True)
    return Triggers(*(field.gather(1, best).masked_fill(blank, fill) for field, fill in pairs))
