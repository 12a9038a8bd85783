"""The strongest triggers of every cell, as a value that can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ffmem.scan.candidates import Table, row_order
from ffmem.scan.hashing import EMPTY


@dataclass(frozen=True)
class Triggers:
    """The k strongest triggers of every cell, strongest first; each field is [cells, k].

    Order is by coefficient (float32) descending, equals by place ascending; only coefficients
    above zero enter. An unfilled slot has coefficient 0 and place EMPTY, and comes last. With
    `groups` (int64) a cell keeps one trigger of each group, the first in this order. In a layer
    with experts `weights` are the router's at each trigger (float16; 0 in shared experts, which it
    does not choose). `merge` is associative and commutative to the bit, so shards may finish in any
    order.
    """

    coefficients: Tensor
    places: Tensor
    groups: Tensor | None = None
    weights: Tensor | None = None

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
        """The tensors, groups and then weights last if there are any."""
        fields = (self.coefficients, self.places, self.groups, self.weights)
        return [field for field in fields if field is not None]

    def of(self, fields: Sequence[Tensor]) -> Triggers:
        """Others with the same kinds of fields."""
        coefficients, places, *more = fields
        groups = None if self.groups is None else more.pop(0)
        return Triggers(coefficients, places, groups, None if self.weights is None else more.pop(0))

    def with_weights(self) -> Triggers:
        """The same with weights, if there are none yet because nothing was read."""
        if self.weights is not None or bool((self.places != EMPTY).any()):
            return self
        return replace(self, weights=torch.zeros_like(self.coefficients, dtype=torch.float16))

    @property
    def slot_counts(self) -> Tensor:
        """How many triggers each cell has: [cells]."""
        return (self.places != EMPTY).sum(1)

    def merge(self, other: Triggers) -> Triggers:
        """The strongest of both sides, which must be of one size and share no place.

        Weights are lost if only one side has them and the other has triggers, as those that an
        earlier version found do.
        """
        if (self.weights is None) != (other.weights is None):
            ours, theirs = self.with_weights(), other.with_weights()
            if ours.weights is None or theirs.weights is None:
                ours, theirs = replace(ours, weights=None), replace(theirs, weights=None)
            return ours.merge(theirs)
        if [t.shape for t in self.fields] != [t.shape for t in other.fields]:
            raise ValueError(
                f"triggers of {list(self.places.shape)} and {list(other.places.shape)} do not "
                "merge, nor do grouped with ungrouped ones"
            )
        return self.of(self._strongest(self.fields, other.fields))

    def take_in(self, found: list[Table]) -> Triggers:
        """What merging with the candidates alone would give, however many a cell has."""
        fields = [field.clone() for field in self.fields]
        for table in found:
            better = self._strongest([field[table.cells] for field in fields], table.fields)
            for field, new in zip(fields, better, strict=True):
                field[table.cells] = new
        return self.of(fields)

    def to(self, device: torch.device | str) -> Triggers:
        """The same triggers on another device."""
        return self.of([field.to(device) for field in self.fields])

    def _strongest(self, ours: list[Tensor], theirs: list[Tensor]) -> list[Tensor]:
        """The strongest of both sides, as many per row as our side has."""
        k = ours[0].shape[1]
        both = [torch.cat(pair, dim=1) for pair in zip(ours, theirs, strict=True)]
        # The bits of floats not below 0 order as the floats do.
        weakness = 2**31 - both[0].view(torch.int32).long()
        order = row_order(weakness, both[1])
        if self.groups is None:
            return [field.gather(1, order[:, :k]) for field in both]
        return _one_per_group(self.of([field.gather(1, order) for field in both]), k)


def _one_per_group(ordered: Triggers, k: int) -> list[Tensor]:
    """The first k of each row after every later trigger of a group already met is blanked."""
    assert ordered.groups is not None
    groups, order = ordered.groups.sort(dim=1, stable=True)
    again = torch.zeros_like(groups, dtype=torch.bool)
    again[:, 1:] = groups[:, 1:] == groups[:, :-1]
    repeated = torch.zeros_like(again).scatter(1, order, again) | (ordered.places == EMPTY)
    best = repeated.to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    blank = repeated.gather(1, best)
    pairs = zip(ordered.fields, (0.0, EMPTY, 0, 0), strict=False)
    return [field.gather(1, best).masked_fill(blank, fill) for field, fill in pairs]
