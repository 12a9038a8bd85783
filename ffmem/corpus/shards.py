"""A corpus cut into shards that can be read independently, in the same way on every machine.

A shard is closed when the next document would take it past a number of UTF-8 bytes or of marks
at which a splitter may cut. Both depend on the text alone. Ordinary prose reaches the bytes first
(about 15,000 sentences); the marks bound the sentences of a shard whatever the text:

    marks + documents <= 32,768, and cutting at m >= 64 tokens adds at most 2 MiB / 64 = 32,768

so that a row fits in 16 bits. A document that exceeds a shard is cut into pieces that fit.

A place is sentence and position in one number. Position p means that p tokens of the sentence have
been read, the BOS not counted: 0 is the empty prefix, and the next token is the sentence's token p.
A sentence's number is its shard's number times 65,536 plus its row in the shard, so a place names
shard, row and position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # text is made ready in processes that need no torch
    import numpy as np
    from torch import Tensor

SHARD_SENTENCES = 1 << 16  # sentences in one shard, at most
SENTENCES = (1 << 32) - 1  # sentence numbers, at most: a store has 4 bytes for each or for none
POSITION_BITS = 16
POSITIONS = (
    1 << POSITION_BITS
)  # positions in one sentence, at most; a sentence of n tokens has n + 1
EMPTY = 2**62  # the place of an unfilled slot: larger than any real one, so it comes last

Whole = TypeVar("Whole", int, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", "Tensor")
SHARD_BYTES = 2 << 20
SHARD_MARKS = 1 << 15

_MARK = re.compile(r"[.!?…؟۔।。！？．\n]")
_GOOD_CUTS = [re.compile(cut, re.DOTALL) for cut in (r".*\n", r".*[.!?]\s", r".*\s")]


def sentence_and_position(place: Whole) -> tuple[Whole, Whole]:
    """The sentence number and the position that a place stands for."""
    return place >> POSITION_BITS, place & (POSITIONS - 1)  # far faster than to divide


def sentence_number(shard: int, row: int) -> int:
    """The number of the sentence in that row of a shard."""
    return shard * SHARD_SENTENCES + row


@dataclass(frozen=True)
class Shard:
    """Consecutive documents of a corpus, none of them empty."""

    number: int
    documents: list[str]

    def part(self, turn: int, of: int) -> Shard:
        """One of `of` consecutive parts with about as many characters each; it may be empty."""
        ends = list(accumulate(map(len, self.documents)))
        chosen = [
            document
            for document, end in zip(self.documents, ends, strict=True)
            if (end - 1) * of // ends[-1] == turn
        ]
        return Shard(self.number, chosen)


def shards(documents: Iterable[str]) -> Iterator[Shard]:
    """Cut a stream of documents into numbered shards; holds one shard at a time."""
    number, held, room = 0, list[str](), (SHARD_BYTES, SHARD_MARKS)
    for document in documents:
        for piece in pieces(document):
            size, marks = weight(piece)
            if held and (size > room[0] or marks > room[1]):
                yield Shard(number, held)
                number, held, room = number + 1, [], (SHARD_BYTES, SHARD_MARKS)
            held.append(piece)
            room = (room[0] - size, room[1] - marks)
    if held:
        yield Shard(number, held)


def weight(text: str) -> tuple[int, int]:
    """The size of a document: its UTF-8 bytes, and its marks plus one."""
    return len(text.encode("utf-8", "surrogatepass")), len(_MARK.findall(text)) + 1


def pieces(document: str) -> Iterator[str]:
    """The document, or consecutive parts of it that each fit in a shard and join to it."""
    starts = range(0, len(document), SHARD_BYTES)
    return pieces_of(document[start : start + SHARD_BYTES] for start in starts)


def pieces_of(parts: Iterable[str]) -> Iterator[str]:
    """The same pieces of a document that arrives in parts of any length; holds one of each."""
    held = ""
    for part in parts:
        held += part
        while len(held) > SHARD_BYTES:  # a character is a byte at least
            yield (head := _cut(held))
            held = held[len(head) :]
    while held:
        yield (head := held if _fits(held) else _cut(held))
        held = held[len(head) :]


def _cut(text: str) -> str:
    """The beginning of a text that is too long for a shard, up to the last good place to cut."""
    head = text[:SHARD_BYTES]
    head = head if _fits(head) else head[: _longest_fit(head)]
    return head[: _good_cut(head)]


def _fits(text: str) -> bool:
    size, marks = weight(text)
    return size <= SHARD_BYTES and marks <= SHARD_MARKS


def _longest_fit(text: str) -> int:
    """The number of characters from the start that fit in a shard, by bisection."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(text[:middle]) else (low, middle - 1)
    return low


def _good_cut(text: str) -> int:
    """The last end of a line, else of a sentence, else of a word, else of the text."""
    found = (cut.match(text) for cut in _GOOD_CUTS)
    return next((match.end() for match in found if match), len(text))
