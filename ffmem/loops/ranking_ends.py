"""Both ends of many rankings at once on a CPU, from scores of one block of tokens after the other.

While a block's scores are in the cache a loop reads each of them a few times. So scores of the
whole vocabulary are never held, and hardly anything is sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from ffmem.loops.compilation import compile_loop, compile_sum

GROUPS = 128  # of a block's tokens, whose extremes are looked at first
HALVINGS = 8  # after which hardly more groups are looked at than are needed
PLUS, MINUS, NONE = np.float32(1), np.float32(-1), np.float32(0)
LOG2_E, HALF, LEAST = np.float32(1.4426950408889634), np.float32(0.5), np.float32(-126)
ONE, EXPONENT, BIAS = np.float32(1), np.int32(23), np.int32(127)
# 2 ** x from -0.5 to 0.5, as exact as float32 is
C1, C2, C3 = np.float32(0.6931471880), np.float32(0.2402265076), np.float32(0.0555035711)
C4, C5, C6 = np.float32(0.0096180826), np.float32(0.0013390863), np.float32(0.0001545316)


class RankingEnds:
    """Both ends of some rankings [row], the k first of each, over the tokens read so far.

    `high`, `low` [row, k] are scores and negative scores, best first, of the tokens `promoted` and
    `suppressed`; ties go to the lowest id. `sums` [row, 2] are of exp(score - high[:, 0]) and
    exp(-score - low[:, 0]).
    """

    def __init__(self, rows: int, k: int) -> None:
        self.high, self.low = (np.full((rows, k), -np.inf, np.float32) for _ in range(2))
        self.promoted, self.suppressed = (np.zeros((rows, k), np.int64) for _ in range(2))
        self.sums = np.zeros((rows, 2))
        self.seen = 0

    def add(self, scores: Tensor) -> None:
        """Read the scores [row, token] of the next tokens, in float32."""
        state = (self.high, self.promoted, self.low, self.suppressed, self.sums)
        _add(scores.numpy(), self.seen, *state)
        self.seen += scores.shape[1]


@compile_loop
def _add(  # noqa: PLR0913 - a compiled loop takes arrays, not objects
    scores: Any, seen: Any, high: Any, promoted: Any, low: Any, suppressed: Any, sums: Any
) -> None:
    """Bring rankings up to date with the scores [row, token] of tokens from `seen` on."""
    groups = min(GROUPS, scores.shape[1])
    largest, least = np.empty(groups, np.float32), np.empty(groups, np.float32)
    for row in range(len(scores)):
        line = scores[row]
        _extremes(line, largest, least)
        before_high, before_low = high[row, 0], low[row, 0]
        _select(line, PLUS, largest, seen, high[row], promoted[row])
        _select(line, MINUS, least, seen, low[row], suppressed[row])
        sums[row, 0] *= np.exp(np.float64(before_high) - high[row, 0])
        sums[row, 1] *= np.exp(np.float64(before_low) - low[row, 0])
        sums[row, 0] += _sum_of_exponentials(line, PLUS, high[row, 0])
        sums[row, 1] += _sum_of_exponentials(line, MINUS, low[row, 0])


@compile_sum
def _extremes(line: Any, largest: Any, least: Any) -> None:
    """The largest and the least score of every group; group g has the tokens g, g + GROUPS ..."""
    groups = len(largest)
    largest[:] = line[:groups]
    least[:] = line[:groups]
    for first in range(groups, len(line), groups):
        part = line[first : first + groups]
        for group in range(len(part)):
            largest[group] = max(largest[group], part[group])
            least[group] = min(least[group], part[group])


@compile_loop
def _select(  # noqa: PLR0913
    line: Any, sign: Any, extremes: Any, seen: Any, best: Any, tokens: Any
) -> None:
    """Enter what belongs among the best of sign * scores.

    What is below the best that are known does not, nor, of the first tokens, what is below the
    extremes of as many groups as there are places.
    """
    least = _bound(extremes, sign, len(best)) if seen == 0 else best[len(best) - 1]
    for group in range(len(extremes)):
        if sign * extremes[group] >= least:
            for token in range(group, len(line), len(extremes)):
                if sign * line[token] >= least:
                    _enter(sign * line[token], seen + token, best, tokens)
                    least = max(least, best[len(best) - 1])


@compile_loop
def _bound(extremes: Any, sign: Any, count: Any) -> Any:
    """A number that at least so many of sign * extremes reach, and few more."""
    if len(extremes) < count:
        return -np.float32(np.inf)
    low = high = sign * extremes[0]
    for group in range(len(extremes)):
        low, high = min(low, sign * extremes[group]), max(high, sign * extremes[group])
    for _ in range(HALVINGS):
        middle = HALF * low + HALF * high
        reached = 0
        for group in range(len(extremes)):
            reached += sign * extremes[group] >= middle
        if reached >= count:
            low = middle
        else:
            high = middle
    return low


@compile_loop
def _enter(score: Any, token: Any, best: Any, tokens: Any) -> None:
    """Put a score among the best, behind its equals of lower id, if it belongs there."""
    place = len(best)
    while place > 0 and (
        score > best[place - 1] or (score == best[place - 1] and token < tokens[place - 1])
    ):
        place -= 1
        if place + 1 < len(best):
            best[place + 1], tokens[place + 1] = best[place], tokens[place]
    if place < len(best):
        best[place], tokens[place] = score, token


@compile_sum
def _sum_of_exponentials(line: Any, sign: Any, top: Any) -> Any:
    """The sum of exp(sign * score - top); none is above 1, and those below 1e-37 are that."""
    total = NONE
    for token in range(len(line)):
        power = max((sign * line[token] - top) * LOG2_E, LEAST)
        whole = np.floor(power + HALF)
        x = power - whole
        value = ((((((C6 * x + C5) * x + C4) * x + C3) * x + C2) * x + C1) * x) + ONE
        total += value * np.int32((np.int32(whole) + BIAS) << EXPONENT).view(np.float32)
    return total
