"""The strongest triggers of every cell, as a value that can be merged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.scan.hashing import EMPTY
from ffmem.scan.state.candidates import Table, row_order


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

    @property
    def fields(self) -> list[Tensor]:
        """The tensors, groups last if there are any."""
        fields = [self.coefficients, self.places]
        return fields if self.groups is None else [*fields, self.groups]

    @property
    def slot_counts(self) -> Tensor:
        """How many triggers each cell has: [cells]."""
        return (self.places != EMPTY).sum(1)

    def merge(self, other: Triggers) -> Triggers:
        """The strongest of both sides, which must be of one size and share no place."""
        if [t.shape for t in self.fields] != [t.shape for t in other.fields]:
            raise ValueError(
                f"triggers of {list(self.places.shape)} and {list(other.places.shape)} do not "
                "merge, nor do grouped with ungrouped ones"
            )
        return _strongest(self.fields, other.fields)

    def take_in(self, found: list[Table]) -> Triggers:
        """What merging with the candidates alone would give, however many a cell has."""
        fields = [field.clone() for field in self.fields]
        for table in found:
            better = _strongest([field[table.cells] for field in fields], table.fields)
            for field, new in zip(fields, better.fields, strict=True):
                field[table.cells] = new
        return Triggers(*fields)

    def to(self, device: torch.device | str) -> Triggers:
        """The same triggers on another device."""
        return Triggers(*(field.to(device) for field in self.fields))


def _strongest(ours: list[Tensor], theirs: list[Tensor]) -> Triggers:
    """The strongest of both sides, as many per row as our side has."""
    k = ours[0].shape[1]
    both = [torch.cat(pair, dim=1) for pair in zip(ours, theirs, strict=True)]
    # The bits of floats not below 0 order as the floats do.
    weakness = 2**31 - both[0].view(torch.int32).long()
    order = row_order(weakness, both[1])
    if len(both) == 2:
        return Triggers(*(field.gather(1, order[:, :k]) for field in both))
    return _one_per_group(Triggers(*(field.gather(1, order) for field in both)), k)


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
