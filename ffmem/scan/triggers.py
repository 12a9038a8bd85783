"""The triggers of every cell, as values that can be merged: the strongest, and a random sample.

`Thresholds` are what a candidate must beat to enter either of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ffmem.corpus.shards import EMPTY, POSITIONS
from ffmem.scan.candidates import Table, row_order
from ffmem.scan.hashing import NO_PRIORITY, priorities
from ffmem.scan.settings import ScanSettings


@dataclass(frozen=True)
class Triggers:
    """The k strongest triggers of every cell, strongest first; each field is [cells, k].

    Order is by coefficient (float32) descending, equals by place ascending; only coefficients
    above zero enter. An unfilled slot has coefficient 0 and place EMPTY, and comes last. With
    `groups` (int64) a cell keeps one trigger of each group, the first in this order. In a layer
    with experts `weights` are the router's at each trigger (float16; 0 in shared experts, which it
    does not choose). `merge` is exactly associative and commutative, so shards may finish in any
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
        if self.weights is not None:
            return self
        return replace(self, weights=torch.zeros_like(self.coefficients, dtype=torch.float16))

    @property
    def slot_counts(self) -> Tensor:
        """How many triggers each cell has: [cells]."""
        return (self.places != EMPTY).sum(1)

    def merge(self, other: Triggers) -> Triggers:
        """The strongest of both sides, which must be of one size and share no place."""
        if (self.weights is None) != (other.weights is None):  # nothing was read on one side
            return self.with_weights().merge(other.with_weights())
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

    def at(self, cells: slice) -> Triggers:
        """Those of some cells, in the same memory."""
        return self.of([field[cells] for field in self.fields])

    def clone(self) -> Triggers:
        """The same triggers in memory of their own."""
        return self.of([field.clone() for field in self.fields])

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

    def at(self, cells: slice) -> Sample:
        """Those of some cells, in the same memory."""
        return Sample(*(field[cells] for field in self.fields))

    def clone(self) -> Sample:
        """The same sample in memory of its own."""
        return Sample(*(field.clone() for field in self.fields))

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
        """The thresholds of some cells."""
        return Thresholds(self.coefficients[cells], self.places[cells], self.priorities[cells])
