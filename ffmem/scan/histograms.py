"""How a cell's coefficients are spread, and from which on they count as firing.

A scan counts coefficients in bins of powers of two (`ffmem.scan.settings.BINS`), for the sentences
of its census. Of every cell a store keeps the bin of its largest coefficient and those below it:
COLUMNS numbers, the first of which holds all that is smaller still.

To *fire* is the cell's own sign where the activation has true zeros (ReLU). Elsewhere nearly every
coefficient is a little off zero, so there it is a coefficient above the layer's threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ffmem.scan.settings import BINS, LOWEST

if TYPE_CHECKING:
    from ffmem.scan.tallies import Tallies
    from ffmem.scan.triggers import Triggers

Integers = NDArray[np.int64]
COLUMNS = 12
LARGE = 1000  # one of so many coefficients of a layer is a large one
BELOW = 3  # halvings from the bin of the smallest large one to the threshold
TRUE_ZEROS = ("relu", "relu2", "relu6")  # activations that are zero wherever they do not fire


@dataclass(frozen=True)
class Histogram:
    """How many of a cell's firing places have a coefficient above an edge, up to the next one.

    `edges` has one more than `counts` and ends at the largest coefficient; above 0 and below the
    last it is powers of two. `counts` add up to the places with a coefficient above zero. They
    are `exact` if every sentence was counted, else estimates from a census of the sentences.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    exact: bool

    @property
    def total(self) -> int:
        """Places with a coefficient above zero."""
        return sum(self.counts)


def bin_numbers(coefficients: NDArray[np.float32]) -> Integers:
    """The bin of each coefficient above zero; bins hold their upper edges (see `torch_pass`)."""
    bits = np.ascontiguousarray(coefficients, dtype=np.float32).view(np.int32)
    bins = (bits - 1 >> 23) - (127 + LOWEST)
    return np.minimum(np.maximum(bins, 0), BINS - 1).astype(np.int64)  # quicker than `clip`


def windows(histogram: Integers, largest: NDArray[np.float32]) -> NDArray[Any]:
    """Counts [cell, bin] as a store keeps them: [cell, column], the last of the largest's bin."""
    column = bin_numbers(largest)[:, None] + np.arange(1 - COLUMNS, 1)
    found = np.take_along_axis(histogram, column.clip(0), axis=1) * (column >= 0)
    found[:, 0] = histogram.sum(axis=1) - found[:, 1:].sum(axis=1)
    return narrow(found)


def narrow(counts: Integers) -> NDArray[Any]:
    """Counts in four bytes each if they fit."""
    return counts.astype(np.uint32 if counts.max(initial=0) < 2**32 else np.uint64)


def cell_histogram(
    window: Integers, fires: int, triggers: NDArray[np.float32], all_sentences: bool
) -> Histogram:
    """A cell's histogram from its row in the store, its count and its strongest coefficients."""
    if not len(triggers):
        return Histogram((), (), True)
    bins = bin_numbers(triggers)
    top = int(bins[0])
    column = np.maximum(bins + (COLUMNS - 1 - top), 0)
    counts = fill_up(window, fires, np.bincount(column, minlength=COLUMNS))
    first = max(0, COLUMNS - 1 - top)  # lower bins do not exist
    inner = [2.0 ** (LOWEST + top - COLUMNS + 1 + place) for place in range(first + 1, COLUMNS)]
    exact = all_sentences and int(window.sum()) == fires
    return Histogram((0.0, *inner, float(triggers[0])), tuple(counts[first:].tolist()), exact)


def fill_up(window: Integers, fires: int, least: Integers) -> Integers:
    """Counts in the proportions of a census that add up to `fires`, none below `least`."""
    seen = int(window.sum())
    if seen == fires:
        return window.astype(np.int64)
    more = np.maximum(window * (fires / seen) - least, 0.0) if seen else least * 1.0
    if not more.any():
        more = least * 1.0
    share = more * ((fires - int(least.sum())) / more.sum())
    counts = least + np.floor(share).astype(np.int64)
    largest_remainders = np.argsort(np.floor(share) - share, kind="stable")
    counts[largest_remainders[: fires - int(counts.sum())]] += 1
    return counts


def first_firing_bin(tallies: Tallies, memories: int, activation: str) -> int:
    """The lowest bin in which a layer's cells fire; 0 where the activation has true zeros.

    One of LARGE coefficients of the layer (zeros included) is a large one. The bin is BELOW bins
    under the one that holds the smallest of them, so that its lower edge, the threshold, is a
    power of two between a sixteenth and an eighth of it.
    """
    if activation in TRUE_ZEROS:
        return 0
    bins = tallies.histogram.sum(0).cpu().numpy()
    above = bins[::-1].cumsum()[::-1] * (int(tallies.fires.sum()) / max(int(bins.sum()), 1))
    large = np.flatnonzero(above >= max(tallies.prefixes * memories / LARGE, 1))
    return max(int(large[-1]) - BELOW, 1) if len(large) else 0


def threshold(first_bin: int) -> float:
    """The coefficient above which cells fire, by the lowest bin in which they do."""
    return 2.0 ** (LOWEST + first_bin) if first_bin else 0.0


def firing(tallies: Tallies, triggers: Triggers, first_bin: int) -> Integers:
    """How often each cell of a layer fires: estimated where the census is not of all sentences.

    It is never less than the triggers that say so.
    """
    fires = tallies.fires.cpu().numpy()
    if not first_bin:
        return fires
    histogram = tallies.histogram.cpu().numpy()
    share = histogram[:, first_bin:].sum(1) / np.maximum(histogram.sum(1), 1)
    least = (triggers.coefficients > threshold(first_bin)).sum(1).cpu().numpy()
    return np.maximum(np.rint(fires * share).astype(np.int64), least)


def counts_above(
    window: Integers, fires: Integers, largest: NDArray[np.float32], bar: float
) -> Integers:
    """How many coefficients of each cell lie above `bar`, a power of two, by what a store keeps.

    `window` [cell, column] and `fires`, the coefficients above 0. Estimated where the census is not
    of all sentences. All that is below a cell's window counts as above the bar if the window ends
    there; such a cell's largest coefficient is a thousand times the bar.
    """
    first_bin = round(np.log2(bar)) - LOWEST
    column = bin_numbers(largest)[:, None] + np.arange(1 - COLUMNS, 1)
    share = (window * (column >= first_bin)).sum(axis=1) / np.maximum(window.sum(axis=1), 1)
    return np.asarray(np.rint(fires * share).astype(np.int64))
