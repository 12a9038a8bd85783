# ruff: noqa: PLR0913 (a compiled loop takes arrays, not objects)
"""One read of a layer's coefficients on the CPU, as a loop that numba compiles, and what follows.

Plain torch needs a read for the maxima, one for the sums, two for the counts and more for the
positions. This loop takes all of them from each coefficient while it is in a register.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.loops.compilation import compile_loop
from ffmem.scan.settings import BINS, LOWEST

ZERO = np.float32(0)
ONE, TWO, THREE = np.int32(1), np.int32(2), np.int32(3)
EXPONENT, FIRST_BIN, LAST_BIN = np.int32(23), np.int32(127 + LOWEST), np.int32(BINS - 1)
SIGN_BIT, WIDTH = np.int32(-(2**31)), np.uint32(BINS)
CACHE_MEMORIES = 64  # memories whose bins, or slots, stay in the cache together


@compile_loop
def _one(line: Any, sign: Any, step: Any, best: Any, at: Any, sums: Any, fires: Any) -> None:
    """One prefix of a row, for all memories."""
    for j in range(len(best)):
        v = sign * line[j]
        above = v > best[j]
        at[j] = step if above else at[j]
        best[j] = v if above else best[j]
        sums[j] += ZERO if v <= ZERO else v  # what is not a number is passed on
        fires[j] += np.int32(v > ZERO)


@compile_loop
def _four(lines: Any, sign: Any, step: Any, best: Any, at: Any, sums: Any, fires: Any) -> None:
    """Four prefixes of a row at once, so that the results go to and from memory once for all."""
    for j in range(len(best)):
        v0, v1, v2, v3 = (
            sign * lines[0, j],
            sign * lines[1, j],
            sign * lines[2, j],
            sign * lines[3, j],
        )
        b, a = best[j], at[j]
        a = step if v0 > b else a
        b = v0 if v0 > b else b
        a = step + ONE if v1 > b else a
        b = v1 if v1 > b else b
        a = step + TWO if v2 > b else a
        b = v2 if v2 > b else b
        a = step + THREE if v3 > b else a
        b = v3 if v3 > b else b
        best[j], at[j] = b, a
        p0, p1 = ZERO if v0 <= ZERO else v0, ZERO if v1 <= ZERO else v1
        p2, p3 = ZERO if v2 <= ZERO else v2, ZERO if v3 <= ZERO else v3
        sums[j] += (p0 + p1) + (p2 + p3)
        fires[j] += (np.int32(v0 > ZERO) + np.int32(v1 > ZERO)) + (
            np.int32(v2 > ZERO) + np.int32(v3 > ZERO)
        )


@compile_loop
def _mark(best: Any, below: Any, priority: Any, drawn: Any, passes: Any) -> None:
    """Which of a row's maxima may enter: those above `below`, and any that fires and is drawn."""
    for j in range(len(best)):
        passes[j] = (best[j] > below[j]) | ((best[j] > ZERO) & (priority <= drawn[j]))


@compile_loop
def numba_pass(
    m: NDArray[np.float32],
    sign: np.float32,
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    priorities: NDArray[np.int32],
    experts: NDArray[np.int64],
    below: NDArray[np.float32],
    drawn: NDArray[np.int32],
    maxima: NDArray[np.float32],
    steps: NDArray[np.int32],
    passes: NDArray[np.bool_],
    sums: NDArray[np.float32],
    fires: NDArray[np.int32],
) -> None:
    """Fill maxima, steps and passes [rows, memories], add to sums and fires [experts, memories].

    Of `m` [lines, memories] a row's admissible prefixes are as many lines from its start on as
    `counts` says. A step is how many lines after the first of them the maximum first occurs, if
    it is above 0.
    A maximum passes above `below`, or if its row's priority is up to `drawn`, both [experts,
    memories] at the row's expert; a dense layer is one expert.
    """
    for row in range(len(counts)):
        first, expert = starts[row], experts[row]
        line, last = first, first + counts[row]
        best, at = maxima[row], steps[row]
        sum_, count = sums[expert], fires[expert]
        best[:] = ZERO
        while line + 4 <= last:
            _four(m[line : line + 4], sign, np.int32(line - first), best, at, sum_, count)
            line += 4
        while line < last:
            _one(m[line], sign, np.int32(line - first), best, at, sum_, count)
            line += 1
        _mark(best, below[expert], priorities[row], drawn[expert], passes[row])


@compile_loop
def _enter(value: Any, place: Any, coefficients: Any, places: Any) -> None:
    """Put a trigger in among those of a cell, strongest first and equals by place."""
    slot = len(coefficients) - 1
    if value < coefficients[slot] or (value == coefficients[slot] and place > places[slot]):
        return
    while slot > 0 and (
        value > coefficients[slot - 1]
        or (value == coefficients[slot - 1] and place < places[slot - 1])
    ):
        coefficients[slot], places[slot] = coefficients[slot - 1], places[slot - 1]
        slot -= 1
    coefficients[slot], places[slot] = value, place


@compile_loop
def _draw(value: Any, place: Any, priority: Any, values: Any, places: Any, ranks: Any) -> None:
    """Put a trigger in among the sample of a cell, smallest priority first and equals by place."""
    slot = len(ranks) - 1
    if slot < 0 or priority > ranks[slot] or (priority == ranks[slot] and place > places[slot]):
        return
    while slot > 0 and (
        priority < ranks[slot - 1] or (priority == ranks[slot - 1] and place < places[slot - 1])
    ):
        values[slot], places[slot] = values[slot - 1], places[slot - 1]
        ranks[slot] = ranks[slot - 1]
        slot -= 1
    values[slot], places[slot], ranks[slot] = value, place, priority


@compile_loop
def fold_passing(
    maxima: NDArray[np.float32],
    steps: NDArray[np.int32],
    passes: NDArray[np.bool_],
    places: NDArray[np.int64],
    priorities: NDArray[np.int32],
    triggers: tuple[NDArray[np.float32], NDArray[np.int64]],
    sample: tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]],
    memories: tuple[int, int],
) -> None:
    """Put what passes [rows, memories] into triggers and sample [memories, slots], in place.

    Only for the memories from the first up to the last, which is not among them; some at a time,
    so that their slots stay in the cache.
    """
    begin, end = memories
    for near in range(begin, end, CACHE_MEMORIES):
        for row in range(len(places)):
            for j in range(near, min(near + CACHE_MEMORIES, end)):
                if passes[row, j]:
                    value, place = maxima[row, j], places[row] + steps[row, j]
                    _enter(value, place, triggers[0][j], triggers[1][j])
                    _draw(value, place, priorities[row], sample[0][j], sample[1][j], sample[2][j])


@compile_loop
def _add(line: Any, flip: Any, factor: Any, bins: Any, at: Any) -> None:
    """One prefix of some memories: which are above zero, `at`, and then the bins of just those.

    No branch, which would be taken at random. Indices are unsigned, or each would be looked at for
    being negative.
    """
    above = np.int64(0)
    for j in range(len(line)):
        at[above] = j
        above += np.int64((line[j] ^ flip) > 0)
    for j in at[:above]:
        b = line[j] ^ flip
        number = min(max(((b - ONE) >> EXPONENT) - FIRST_BIN, np.int32(0)), LAST_BIN)
        bins[np.uint64(np.uint32(j) * WIDTH + np.uint32(number))] += factor


@compile_loop
def count_bins(
    bits: NDArray[np.int32],
    sign: int,
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    factors: NDArray[np.int64],
    experts: NDArray[np.int64],
    histogram: NDArray[np.int64],
    memories: tuple[int, int],
) -> None:
    """Add each row's factor to the bin of every coefficient above zero, [expert, memory, bin].

    Only for the memories from the first up to the last, which is not among them.

    `bits` [lines, memories] are those of the coefficients: above zero they order as the floats do,
    and one step down an upper edge of a bin falls into it (see `torch_pass.bin_numbers`).
    """
    flip = SIGN_BIT if sign < 0 else np.int32(0)
    begin, end = memories
    at = np.empty(CACHE_MEMORIES, np.uint32)
    for row in range(len(counts)):
        into, factor = histogram[experts[row]], factors[row]
        for near in range(begin, end, CACHE_MEMORIES):
            bins = into[near : min(near + CACHE_MEMORIES, end)].reshape(-1)
            for line in range(starts[row], starts[row] + counts[row]):
                _add(bits[line, near : min(near + CACHE_MEMORIES, end)], flip, factor, bins, at)
