"""Sentences that some trigger points at, kept so that it can be shown without the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ffmem.corpus.sentences import Sentences

SPAN = 8  # sentence numbers per number that is looked up, up to which a table of all is made


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
        """The sentences among `numbers`, which are in order; those not here are passed over."""
        if not len(numbers):
            return KeptSentences.empty()
        where = np.minimum(np.searchsorted(numbers, self.numbers), len(numbers) - 1)
        wanted = numbers[where] == self.numbers
        if wanted.all():
            return self
        sizes, text_sizes = np.diff(self.starts), np.diff(self.text_starts)
        # A mark for each token and letter: an eighth of the memory that their indices would take.
        tokens, letters = np.repeat(wanted, sizes), np.repeat(wanted, text_sizes)
        return KeptSentences(
            self.numbers[wanted],
            starts_of(sizes[wanted]),
            self.tokens[tokens],
            self.token_ends[tokens],
            starts_of(text_sizes[wanted]),
            self.text[letters],
        )

    @classmethod
    def join(cls, parts: Sequence[KeptSentences]) -> KeptSentences:
        """The sentences of all parts, which share none, in order of their numbers."""
        if not parts:
            return cls.empty()
        both = cls(
            np.concatenate([part.numbers for part in parts]),
            starts_of(np.concatenate([np.diff(part.starts) for part in parts])),
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.token_ends for part in parts]),
            starts_of(np.concatenate([np.diff(part.text_starts) for part in parts])),
            np.concatenate([part.text for part in parts]),
        )
        if (np.diff(both.numbers) > 0).all():
            return both
        return both._rows(np.argsort(both.numbers, kind="stable"))

    def row(self, number: int) -> int:
        """The row of the sentence with this number; a KeyError if it is not kept."""
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self) or int(self.numbers[row]) != number:
            raise KeyError(number)
        return row

    def rows(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """The rows of the sentences with these numbers; a KeyError if one is not kept."""
        span = int(self.numbers[-1] - self.numbers[0]) + 1 if len(self) else 0
        if 0 < span <= SPAN * len(numbers):  # many: a table is quicker than a search for each
            table = np.zeros(span, np.int64)
            table[self.numbers - self.numbers[0]] = np.arange(len(self))
            rows = table.take(numbers.astype(np.int64) - self.numbers[0], mode="clip")
        else:
            rows = np.minimum(np.searchsorted(self.numbers, numbers), max(len(self) - 1, 0))
        missing = np.flatnonzero(self.numbers[rows] != numbers)
        if len(missing):
            raise KeyError(int(numbers[missing[0]]))
        return rows

    def token_ids(self, row: int) -> NDArray[np.int32]:
        """The tokens of the sentence in that row."""
        return np.asarray(self.tokens[self.starts[row] : self.starts[row + 1]])

    def sentence(self, row: int) -> str:
        """The exact source text of the sentence in that row."""
        return self._text(*self.text_starts[row : row + 2].tolist())

    def _text(self, start: int, stop: int) -> str:
        return str(self.text[start:stop].data, "utf-8", "surrogatepass")

    def pieces(self, row: int) -> list[str]:
        """The source text of the sentence in that row, token by token."""
        text, ends = self.sentence(row), self.token_ends[self.starts[row] : self.starts[row + 1]]
        starts = [0, *ends[:-1].tolist()]
        return [text[start:end] for start, end in zip(starts, ends.tolist(), strict=False)]

    def around(
        self, rows: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> list[tuple[str, str, str, str]]:
        """The text at each place, in four: before the last token, it, the next one, the rest."""
        starts, sizes = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        columns = [self.text_starts[rows], self.text_starts[rows + 1]]
        for read in (positions - 1, positions, np.minimum(positions + 1, sizes)):
            ends = self.token_ends[np.maximum(starts + read - 1, 0)]
            columns.append(np.where(read > 0, ends, 0))  # a sentence starts at 0
        found = []
        for start, stop, last, here, after in zip(*(one.tolist() for one in columns), strict=True):
            text = self._text(start, stop)
            found.append((text[:last], text[last:here], text[here:after], text[after:]))
        return found

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


ARRAYS = tuple(field.name for field in fields(KeptSentences))  # their names on disk, too


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The start of each run of these sizes, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def flat_indices(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of all elements of stretches given by start and size, in order."""
    shift = starts - starts_of(sizes)[:-1]
    return np.repeat(shift, sizes) + np.arange(int(sizes.sum()), dtype=np.int64)
