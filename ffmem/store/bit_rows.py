"""Rows of numbers in as few bits as they need; any row can be read without the others.

| bytes | what they hold                                                                          |
|-------|-----------------------------------------------------------------------------------------|
| first | HEAD: how many rows and columns of which type, and how they are coded                   |
| then  | row by row, each in whole bytes: a code of so many bits for every number, lowest first  |
| last  | WORD bytes of zero, so that a whole word can be read at any of the bytes before         |

A number counts as the whole number that its bytes spell. The code 0 stands for `nothing`, the
number that fills what is empty, and any other code c for `low + (c - 1 << shift)`. No number is
rounded: whole numbers take the bits of their range, and so do coefficients; those that a model
computed in bfloat16 lose their last 16 bits, which all of them have alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
WORD = 8  # bytes read at once, from any byte on
MOST_BITS = 8 * WORD - 7  # of a code, so that it lies in one word wherever it begins
MOST_COLUMNS = 1 << 16  # so that a head alone takes no memory
TOGETHER = 1 << 10  # rows coded at once, so that they stay in the processor's cache
TABLE_BITS = 16  # bits of codes whose numbers are listed once instead of computed


class Header(NamedTuple):
    """How many numbers of which type there are, and what their codes mean."""

    type: bytes
    rows: int
    columns: int
    bits: int
    shift: int
    low: int
    nothing: int

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        return -(-self.columns * self.bits // 8)

    @property
    def starts(self) -> Integers:
        """The bit at which each column begins."""
        return np.arange(self.columns) * self.bits


HEAD = np.dtype([("type", "S8"), *((name, "<i8") for name in Header._fields[1:])])


def pack(array: NDArray[Any], nothing: int = 0) -> NDArray[np.uint8]:
    """The bytes of an array [row, column] of numbers."""
    numbers = np.ascontiguousarray(array).view(f"<u{array.itemsize}")
    head = head_of(numbers, array.dtype, nothing)
    parts = [np.frombuffer(np.array(head, HEAD).tobytes(), np.uint8)]
    for block in blocks(numbers):
        codes = np.where(block == nothing, 0, (block - head.low >> head.shift) + 1)
        room = np.zeros((len(block), head.row_size + WORD), np.uint8)
        words = _words_at_bytes(room.reshape(-1), len(block), head.row_size, WORD)
        for column, start in enumerate(head.starts.tolist()):
            words[:, start // 8] |= codes[:, column] << start % 8
        parts.append(room[:, : head.row_size].reshape(-1))
    return np.concatenate([*parts, np.zeros(WORD, np.uint8)])


def head_of(numbers: NDArray[Any], kind: np.dtype[Any], nothing: int) -> Header:
    """How whole numbers are coded in the fewest bits."""
    known = [
        (int(some.min()), int(some.max()), int(np.bitwise_or.reduce(some ^ some[0])))
        for some in others(numbers, nothing)
    ]
    low = min((least for least, _, _ in known), default=0)
    high = max((most for _, most, _ in known), default=0)
    differing = 0  # every bit that not all numbers have alike
    for least, _, within in known:
        differing |= within | least ^ low
    shift = max((differing & -differing).bit_length() - 1, 0)
    bits = ((high - low >> shift) + 1).bit_length()
    if bits > MOST_BITS:
        raise ValueError(f"numbers from {low:,} to {high:,} are too far apart to be packed")
    natural = (nothing + 1) % (1 << 8 * kind.itemsize)  # then the code 0 is nothing by itself
    if not shift and natural <= low and (high - natural + 1).bit_length() == bits:
        low = natural
    rows, columns = numbers.shape
    return Header(kind.str.encode(), rows, columns, bits, shift, low, nothing)


def blocks(numbers: NDArray[Any]) -> Iterator[Integers]:
    """Some rows after the other, in eight bytes per number."""
    return (some.astype(np.int64) for some in stretches(numbers))


def others(numbers: NDArray[Any], nothing: int) -> Iterator[Integers]:
    """The numbers that are not nothing, of some rows after the other that have any."""
    return filter(len, (block[block != nothing] for block in blocks(numbers)))


def stretches(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Some rows after the other, at least once; not copies."""
    return (rows[first : first + TOGETHER] for first in range(0, max(len(rows), 1), TOGETHER))


def join(parts: Iterator[NDArray[Any]]) -> NDArray[Any]:
    """Rows that were made some after the other."""
    first, *rest = parts
    return np.concatenate([first, *rest]) if rest else first


def _words_at_bytes(data: NDArray[np.uint8], rows: int, size: int, gap: int = 0) -> Integers:
    """[row, byte]: the word that begins at each byte of rows with a gap after each; not a copy."""
    return np.ndarray((rows, size), "<i8", data, strides=(size + gap, 1))


class BitRows:
    """What `pack` made, read like the array it was made of; only the rows asked for are decoded."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        """Take the bytes; a ValueError if they cannot be right."""
        (fields,) = np.frombuffer(data[: HEAD.itemsize].tobytes(), HEAD, count=1).tolist()
        head = self._head = Header(*fields)
        self.shape, self.dtype = (head.rows, head.columns), np.dtype(head.type.decode())
        fits = head.rows >= 0 and 0 <= head.columns <= MOST_COLUMNS
        fits = fits and 0 < head.bits <= MOST_BITS and 0 <= head.shift <= MOST_BITS
        if not fits or len(data) != HEAD.itemsize + head.rows * head.row_size + WORD:
            raise ValueError(f"{len(data):,} bytes cannot hold {self.shape} numbers")
        self._words = _words_at_bytes(data[HEAD.itemsize :], head.rows, head.row_size)
        self._bytes, self._bits = head.starts >> 3, head.starts & 7
        self._masks = np.full(head.columns, (1 << head.bits) - 1)
        self._unsigned = np.dtype(f"<u{self.dtype.itemsize}")
        self._first = head.low - (1 << head.shift)  # what the code 0 would stand for
        self._special = (self._first - head.nothing) % (1 << 8 * self.dtype.itemsize) != 0

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it."""
        return self[:].astype(dtype or self.dtype, copy=False)

    def __getitem__(self, where: Any) -> NDArray[Any]:
        """Rows by a number, a slice, numbers or a mask, and columns by a number or a slice."""
        rows, columns = where if isinstance(where, tuple) else (where, slice(None))
        at, words = self._bytes[columns], self._words
        if isinstance(rows, int | np.integer):
            return self._decode(words[rows][at], columns)
        if isinstance(rows, slice):
            words = words[rows]  # not a copy
            if len(words) == 1:  # numpy is quicker with a row than with a table of one
                return self._decode(words[0][at], columns)[None]
            parts = stretches(words)
        elif len(rows) <= TOGETHER:
            return self._decode(words[rows][:, at], columns)
        else:
            parts = (words[some] for some in stretches(np.arange(len(self))[rows]))
        return join(self._decode(part[:, at], columns) for part in parts)

    def _decode(self, words: Integers, columns: Any) -> NDArray[Any]:
        """The numbers that words begin with."""
        codes = words >> self._bits[columns] & self._masks[columns]
        return self._numbers(codes) if self._list is None else self._list[codes]

    def _numbers(self, codes: Integers) -> NDArray[Any]:
        """Decode codes to numbers."""
        shift = self._head.shift
        found = (codes << shift if shift else codes) + self._first
        if self._special:
            found = np.where(codes == 0, self._head.nothing, found)
        found = found.astype(self._unsigned)
        return found if self._unsigned == self.dtype else found.view(self.dtype)

    @cached_property
    def _list(self) -> NDArray[Any] | None:
        """The numbers of all codes, if there are few; else None."""
        few = self._head.bits <= TABLE_BITS
        return self._numbers(np.arange(1 << self._head.bits)) if few else None
