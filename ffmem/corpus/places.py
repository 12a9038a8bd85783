"""Sentence and position in one number.

Position p means that p tokens of the sentence have been read, the BOS not counted: 0 is the
empty prefix, and the next token is the sentence's token p. A sentence's number is its shard's
number times 65,536 plus its row in the shard, so a place names shard, row and position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # text is made ready in processes that need no torch
    import numpy as np
    from torch import Tensor

ROWS = 1 << 16  # sentences in one shard, at most
POSITIONS = 1 << 16  # positions in one sentence, at most; a sentence of n tokens has n + 1
EMPTY = 2**62  # the place of an unfilled slot: larger than any real one, so it comes last

Whole = TypeVar("Whole", int, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", "Tensor")


def sentence_and_position(place: Whole) -> tuple[Whole, Whole]:
    """The sentence number and the position that a place stands for."""
    return place // POSITIONS, place % POSITIONS


def sentence_number(shard: int, row: int) -> int:
    """The number of the sentence in that row of a shard."""
    return shard * ROWS + row
