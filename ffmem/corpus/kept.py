"""Sentences that some trigger points at, kept so that it can be shown without the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.sentences import Sentences


@dataclass(frozen=True)
class KeptSentences:
    """Sentences in order of their numbers, as flat arrays that can lie on disk.

    Sentence i has tokens and token ends at `starts[i]:starts[i + 1]` and its text, in UTF-8, at
    `text_starts[i]:text_starts[i + 1]` of `text`.
    """

    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    tokens: NDArray[np.int32]
    token_ends: NDArray[np.int32]
    text_starts: NDArray[np.int64]
    text: NDArray[np.uint8]

    @classmethod
    def empty(cls) -> KeptSentences:
        """No sentence."""
        return cls(
            np.zeros(0, np.int64),
            np.zeros(1, np.int64),
            np.zeros(0, np.int32),
            np.zeros(0, np.int32),
            np.zeros(1, np.int64),
            np.zeros(0, np.uint8),
        )

    @classmethod
    def of(cls, sentences: Sentences) -> KeptSentences:
        """All sentences of one shard."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in sentences.texts]
        return cls(
            sentences.numbers,
            sentences.starts,
            sentences.tokens,
            sentences.token_ends,
            starts_of(np.array([len(text) for text in encoded], dtype=np.int64)),
            np.frombuffer(b"".join(encoded), dtype=np.uint8),
        )

    def __len__(self) -> int:
        """How many sentences there are."""
        return len(self.numbers)

    def only(self, numbers: NDArray[np.int64]) -> KeptSentences:
        """The sentences among `numbers`; numbers that are not here are passed over."""
        rows = np.flatnonzero(np.isin(self.numbers, numbers))
        return self._rows(rows)

    def joined(self, other: KeptSentences) -> KeptSentences:
        """The sentences of both sides, which share none."""
        numbers = np.concatenate([self.numbers, other.numbers])
        both = KeptSentences(
            numbers,
            joined_starts(self.starts, other.starts),
            np.concatenate([self.tokens, other.tokens]),
            np.concatenate([self.token_ends, other.token_ends]),
            joined_starts(self.text_starts, other.text_starts),
            np.concatenate([self.text, other.text]),
        )
        if (np.diff(numbers) > 0).all():
            return both
        return both._rows(np.argsort(numbers, kind="stable"))

    def row(self, number: int) -> int:
        """Where the sentence with this number is; a KeyError if it is not here."""
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self) or int(self.numbers[row]) != number:
            raise KeyError(number)
        return row

    def token_ids(self, row: int) -> NDArray[np.int32]:
        """The tokens of the sentence in that row."""
        return np.asarray(self.tokens[self.starts[row] : self.starts[row + 1]])

    def sentence(self, row: int) -> str:
        """The exact source text of the sentence in that row."""
        piece = self.text[self.text_starts[row] : self.text_starts[row + 1]]
        return bytes(piece).decode("utf-8", "surrogatepass")

    def around(self, row: int, position: int) -> tuple[str, str, str, str]:
        """The text at a place, in four: before the last token, it, the next one, the rest."""
        text = self.sentence(row)
        ends = np.concatenate([[0], self.token_ends[self.starts[row] : self.starts[row + 1]]])
        last = ends[max(position - 1, 0)]
        here, after = ends[position], ends[min(position + 1, len(ends) - 1)]
        return text[:last], text[last:here], text[here:after], text[after:]

    def _rows(self, rows: NDArray[Any]) -> KeptSentences:
        sizes, text_sizes = np.diff(self.starts)[rows], np.diff(self.text_starts)[rows]
        where = flat_indices(self.starts[rows], sizes)
        letters = flat_indices(self.text_starts[rows], text_sizes)
        return KeptSentences(
            self.numbers[rows],
            starts_of(sizes),
            self.tokens[where],
            self.token_ends[where],
            starts_of(text_sizes),
            self.text[letters],
        )


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each stretch begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def joined_starts(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The starts of two rows of stretches laid end to end."""
    return np.concatenate([one, one[-1] + other[1:]])


def flat_indices(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of all elements of stretches given by start and size, in order."""
    shift = starts - starts_of(sizes)[:-1]
    return np.repeat(shift, sizes) + np.arange(int(sizes.sum()), dtype=np.int64)
