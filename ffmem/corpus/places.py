"""Sentence and position in one number.

Position p means that p tokens of the sentence have been read, the BOS not counted: 0 is the
empty prefix, and the next token is the sentence's token p. A sentence's number is its shard's
number times 65,536 plus its row in the shard, so a place names shard, row and position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:  # text is made ready in processes that need no torch
    from torch import Tensor

ROWS = 1 << 16  # sentences in one shard, at most
POSITIONS = 1 << 16  # positions in one sentence, at most; a sentence of n tokens has n + 1

Whole = TypeVar("Whole", int, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", "Tensor")


def _wide(numbers: Whole) -> Whole:
    """The same numbers as 64-bit ones, so that a product does not overflow."""
    if isinstance(numbers, int):
        return numbers
    if isinstance(numbers, np.ndarray):
        return numbers.astype(np.int64, copy=False)
    return numbers.long()


def place_of(sentence: Whole, position: Whole) -> Whole:
    """The place of one prefix or of many: both ints, both numpy arrays or both tensors."""
    return _wide(sentence) * POSITIONS + _wide(position)


def sentence_and_position(place: Whole) -> tuple[Whole, Whole]:
    """The sentence number and the position that a place stands for."""
    wide = _wide(place)
    return wide // POSITIONS, wide % POSITIONS


def sentence_number(shard: int, row: int) -> int:
    """The number of the sentence in that row of a shard."""
    return shard * ROWS + row


def shard_and_row(sentence: Whole) -> tuple[Whole, Whole]:
    """The shard that holds a sentence, and its row there."""
    wide = _wide(sentence)
    return wide // ROWS, wide % ROWS
