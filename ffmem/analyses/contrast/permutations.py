"""Which cells differ between two sets of parts, by what random sets of the same parts differ.

A cell's score is the difference of its fire rates over its error, both from counts by part. The
parts are dealt out to the two sides at random many times. The bar is the lowest score that holds
false discoveries to a level: in 95 % of the deals no more cells pass it than that share of those
that pass in truth. This needs no assumption on how cells depend on one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEED = 0  # of the deals
DEALS = 200
CONFIDENCE = 0.95  # share of the deals in which the level is held
STEP, HIGHEST = 0.02, 100.0  # of the scores that are told apart
CHUNK = 4096  # cells at a time
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Passing:
    """How many cells reach a score at least, for scores in steps, in truth and in the deals."""

    true: Floats  # [step]
    bound: Floats  # [step], what 95 % of the deals stay at or below
    deals: Floats  # [deal, step]

    def bar(self, level: float) -> int | None:
        """The lowest step at which false discoveries are held to the level, if there is one."""
        held = np.flatnonzero((self.true > 0) & (self.bound <= level * self.true))
        return int(held[0]) if len(held) else None

    def least_level(self, scores: Floats) -> Floats:
        """For every cell the smallest level at which it is called different."""
        share = np.where(self.true > 0, self.bound / np.maximum(self.true, 1), 1.0)
        smallest = np.minimum.accumulate(np.minimum(share, 1.0))
        return np.asarray(smallest[steps_of(scores)])

    def deals_with_any(self, level: float) -> int:
        """The deals in which any cell would be called different by the same rule."""
        held = (self.deals > 0) & (self.bound <= level * self.deals)
        return int(held.any(axis=1).sum())


def steps_of(scores: Floats) -> NDArray[np.int64]:
    """The step of each score, whatever its sign."""
    return np.minimum(np.abs(scores) / STEP, HIGHEST / STEP).astype(np.int64)


def scores_of(fires: Floats, prefixes: Floats, sides: Floats) -> Floats:
    """[deal, cell]: the difference of two sides' rates over its error, from counts [part, cell].

    `sides` [deal, part] is 1 for the parts of the first side. The error is that of two ratios of
    sums over parts. Half a firing is added on each side, so that no error is zero.
    """
    squares, products = fires**2, fires * prefixes[:, None]
    rates, variances = [], []
    for side in (sides, 1 - sides):
        read, parts = (side @ prefixes)[:, None], side.sum(axis=1)[:, None]
        rate = (side @ fires) / read
        rest = side @ squares - 2 * rate * (side @ products)
        rest += rate**2 * (side @ prefixes**2)[:, None]
        rates.append(rate)
        variances.append((np.maximum(rest, 0) * parts / (parts - 1) + 0.25) / read**2)
    return np.asarray((rates[0] - rates[1]) / np.sqrt(variances[0] + variances[1]))


def deal(parts: int, first: int, seed: int) -> Floats:
    """[deal, part]: the true sides, then random ones of as many parts; 1 is the first side."""
    draw = np.random.default_rng(seed)
    true = (np.arange(parts) < first).astype(np.float64)
    return np.stack([true, *(draw.permutation(true) for _ in range(DEALS))])


def compare_parts(
    one: tuple[Floats, Floats], other: tuple[Floats, Floats]
) -> tuple[Floats, Passing]:
    """The score of every cell, and how many cells reach each score, from (fires, prefixes)."""
    prefixes = np.concatenate([one[1], other[1]])
    sides = deal(len(prefixes), len(one[1]), SEED)
    steps = int(HIGHEST / STEP) + 1
    counts, true = np.zeros((len(sides), steps)), []
    for cells in _chunks(one[0].shape[1]):
        fires = np.concatenate([one[0][:, cells], other[0][:, cells]])
        found = scores_of(fires, prefixes, sides)
        true.append(found[0])
        place = steps_of(found) + steps * np.arange(len(sides))[:, None]
        counts += np.bincount(place.ravel(), minlength=counts.size).reshape(counts.shape)
    reach = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    rank = min(DEALS, int(np.ceil(CONFIDENCE * (DEALS + 1)))) - 1
    bound = np.sort(reach[1:], axis=0)[rank]
    return np.concatenate(true), Passing(reach[0], bound, reach[1:])


def _chunks(cells: int) -> Iterator[slice]:
    """All cells, some at a time."""
    for start in range(0, cells, CHUNK):
        yield slice(start, start + CHUNK)
