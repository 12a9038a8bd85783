"""Pairs of memory and place in the order of their predicted effects, and a sample of the others."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from ffmem.memories.why.passes import LayerSlopes
from ffmem.memories.why.record import LayerEffects
from ffmem.memories.why.silencing import Replacement

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Pair:
    """A memory at one column of the input, and the predicted effect of replacing it there."""

    layer: int
    column: int
    memory: int
    coefficient: float
    replaced_by: float
    predicted: float

    @property
    def replacement(self) -> Replacement:
        """The same as an edit."""
        return Replacement(self.layer, self.column, self.memory, self.replaced_by)


@dataclass(frozen=True)
class LayerProposal:
    """Predicted effects of one layer [column, memory], and which coefficients would change."""

    number: int
    m: Tensor
    instead: Tensor | None
    effects: Tensor
    changed: Tensor  # the same shape, true or false; leading columns are false

    def pair(self, column: int, memory: int) -> Pair:
        """One of its pairs."""
        return Pair(
            self.number,
            column,
            memory,
            float(self.m[column, memory]),
            0.0 if self.instead is None else float(self.instead[column, memory]),
            float(self.effects[column, memory]),
        )

    def flat(self, index: int) -> Pair:
        """The pair at an index of the flat arrays."""
        return self.pair(*divmod(index, self.effects.shape[1]))

    def column_pairs(self, memory: int) -> list[Pair]:
        """One memory at every place where its coefficient would change."""
        columns = self.changed[:, memory].nonzero()[:, 0].tolist()
        return [self.pair(column, memory) for column in columns]


@dataclass(frozen=True)
class Proposal:
    """All layers of a prompt with their predicted effects."""

    layers: tuple[LayerProposal, ...]
    lead: int  # columns before the text

    def strongest(self, count: int) -> list[Pair]:
        """The pairs with the largest predicted effects of either sign."""
        found: list[Pair] = []
        for layer in self.layers:
            sizes = layer.effects[self.lead :].abs().flatten()
            chosen = sizes.topk(min(count, len(sizes))).indices + self.lead * layer.m.shape[1]
            found += [layer.flat(index) for index in chosen.tolist()]
        active = [pair for pair in found if pair.coefficient != pair.replaced_by]
        return sorted(active, key=lambda pair: -abs(pair.predicted))[:count]

    @property
    def size(self) -> int:
        """How many pairs would change."""
        return sum(int(layer.changed.sum()) for layer in self.layers)

    def sample(self, count: int, without: Sequence[Pair], seed: int) -> list[Pair]:
        """Pairs that would change, drawn at random without replacement, but for some."""
        ends = list(accumulate(int(layer.changed.sum()) for layer in self.layers))
        every = ends[-1] if ends else 0
        drawn = random.Random(seed).sample(range(every), min(every, count + len(without)))
        places = [layer.changed.flatten().nonzero()[:, 0] for layer in self.layers]
        known = {(pair.layer, pair.column, pair.memory) for pair in without}
        found: list[Pair] = []
        for number in drawn:
            at = bisect_right(ends, number)
            inside = number - (ends[at - 1] if at else 0)
            pair = self.layers[at].flat(int(places[at][inside]))
            if (pair.layer, pair.column, pair.memory) not in known:
                found.append(pair)
        return found[:count]

    def layer(self, number: int) -> LayerProposal:
        """The layer with this number."""
        return next(layer for layer in self.layers if layer.number == number)

    @property
    def heat(self) -> tuple[LayerEffects, ...]:
        """Sums over the memories of each layer, at every place of the text."""
        return tuple(
            LayerEffects(layer.number, tuple(layer.effects[self.lead :].sum(dim=1).tolist()))
            for layer in self.layers
        )

    @property
    def leading(self) -> float:
        """The predicted effects of all pairs before the text."""
        return sum(float(layer.effects[: self.lead].sum()) for layer in self.layers)


def propose(
    slopes: Sequence[LayerSlopes], lead: int, instead: Sequence[Tensor] | None = None
) -> Proposal:
    """Predicted effects of replacing every coefficient by 0, or by those of another prompt."""
    layers = []
    for place, one in enumerate(slopes):
        other = None if instead is None else instead[place]
        changed = one.m != (0 if other is None else other)
        changed[:lead] = False
        layers.append(LayerProposal(one.layer.number, one.m, other, one.effects(other), changed))
    return Proposal(tuple(layers), lead)


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's; NaN for fewer than three pairs, and where one side is constant or unknown."""
    if len(one) < 3:
        return math.nan
    both = torch.tensor([one, other], dtype=torch.float64)
    return float(torch.corrcoef(both)[0, 1]) if bool(both.std(dim=1).all()) else math.nan


def upper_bound(above: int, sampled: int) -> float:
    """The largest share that is not refuted by `above` of `sampled` draws (Clopper and Pearson)."""
    if above >= sampled:
        return 1.0
    low, high = above / sampled, 1.0
    for _ in range(60):
        share = (low + high) / 2
        at_most = sum(
            math.comb(sampled, k) * share**k * (1 - share) ** (sampled - k)
            for k in range(above + 1)
        )
        low, high = (share, high) if at_most > 1 - CONFIDENCE else (low, share)
    return high
