"""Which cells' triggers have some words: counted, or weighted, from the prepared arrays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.store.cells import CellRows
from ffmem.store.kept_sentences import flat_indices
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.index import Arrays, fold_case, words_in
from ffmem.store.search.matching_cells import Matches
from ffmem.store.slots import TRIGGERS_SHOWN

MOST_WORD_TRIGGERS = 50_000  # triggers that a question of several words looks at
MOST_RELATED_TRIGGERS = 200_000  # triggers that a question of related words looks at
SCORE_STEPS = 50_000  # of scores from 0 to 1, so that they fit into two bytes
Postings = tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.float32]]
NO_POSTINGS: Postings = (np.zeros(0, np.int32), np.zeros(0, np.uint16), np.zeros(0, np.float32))


@cache
def compiled_sums() -> Callable[..., None]:
    """`_sum_weights` compiled by numba."""
    from ffmem.loops.compilation import compile_loop  # here: numba is slow to import

    return compile_loop(_sum_weights)


def _sum_weights(  # noqa: C901, PLR0913 - a compiled loop takes arrays, and is one function
    sentences: Any, read: Any, weights: Any, starts: Any, position: Any, cells: Any, scores: Any
) -> None:
    """Add to the score of every cell the weights of words in each of its triggers, 1 at most.

    The first three arrays describe words in `sentences`, which are sorted; the next three triggers.
    """
    first = 0
    while first < len(sentences):
        sentence, stop = sentences[first], first + 1
        while stop < len(sentences) and sentences[stop] == sentence:
            stop += 1
        triggers = range(starts[sentence], starts[sentence + 1])
        if stop == first + 1:  # as in most sentences; twice as quick
            until, weight = read[first], min(weights[first], np.float32(1))
            for trigger in triggers:
                if until <= position[trigger]:
                    scores[cells[trigger]] += weight
        else:
            for trigger in triggers:
                total = np.float32(0)
                for word in range(first, stop):
                    if read[word] <= position[trigger]:
                        total += weights[word]
                scores[cells[trigger]] += min(total, np.float32(1))
        first = stop


@dataclass(frozen=True, eq=False)
class TriggerWords:
    """Queries on the words of all triggers. Thread-safe."""

    store: ScanStore
    arrays: Arrays = field(repr=False)

    @lru_cache(maxsize=65_536)  # noqa: B019
    def word_number(self, word: str) -> int | None:
        """The place of a word among all words of triggers, or None."""
        starts, text = self.arrays["word_text_starts"], self.arrays["word_text"]

        def name(place: int) -> bytes:
            return bytes(text[starts[place] : starts[place + 1]])

        wanted, count = fold_case(word.encode()), len(starts) - 1
        place = bisect_left(range(count), wanted, key=name)
        return place if place < count and name(place) == wanted else None

    def with_words(self, phrase: str, first: int | None = None) -> Matches:
        """The cells with most triggers (of those shown to people) that contain a phrase's words.

        `first` is the number of cells to return; None returns all. For a word that is in more than
        COMMON triggers, cells with one such trigger are left out; for several words that are common
        together, only the first triggers are counted.
        """
        numbers = [self.word_number(name) for name in words_in(phrase)]
        if not numbers or None in numbers:
            return Matches.nothing()
        if len(numbers) == 1 and (counted := self._common(numbers[0] or 0)) is not None:
            return counted
        sentences, read = self._sentences_with([number for number in numbers if number is not None])
        many, sentences, read = (
            len(sentences),
            sentences[:MOST_WORD_TRIGGERS],
            read[:MOST_WORD_TRIGGERS],
        )
        sizes = self._trigger_counts[sentences]
        few = int(np.searchsorted(np.cumsum(sizes), MOST_WORD_TRIGGERS, side="right"))
        share = few / max(many, 1) if few < many else 1.0
        where = flat_indices(self.arrays["sentence_starts"][sentences[:few]], sizes[:few])
        whole = self.arrays["sentence_read"][where] >= np.repeat(read[:few], sizes[:few])
        rows, counts = np.unique(self.arrays["sentence_cells"][where[whole]], return_counts=True)
        return Matches.of(rows, counts.astype(np.uint8), share).by_score(first)

    def with_weights(
        self, weights: Mapping[str, float], most: float = 1.0, first: int | None = None
    ) -> Matches:
        """The cells whose triggers contain words of large weight: mean over triggers, best first.

        `first` is the number of cells to return; None returns all. The weights in a prefix add up
        to at most `most`, which counts as 1. Words of small weight are left out once
        MOST_RELATED_TRIGGERS have been read. Scores are rounded to 1 / SCORE_STEPS, which
        sorts fast.
        """
        words, share = self._heaviest(weights)
        sentences, read, each = (np.concatenate(column) for column in zip(*words, strict=True))
        order = np.argsort(sentences, kind="stable")
        postings = (sentences[order], read[order], each[order] / np.float32(most))
        triggers = (self.arrays[f"sentence_{name}"] for name in ("starts", "read", "cells"))
        scores = np.zeros(self.store.cells.count, np.float32)
        compiled_sums()(*postings, *triggers, scores)
        rows = np.flatnonzero(scores > 0)
        steps = np.rint(scores[rows] * (SCORE_STEPS / TRIGGERS_SHOWN)).astype(np.uint16)
        found = Matches.of(rows, steps, share).by_score(first)
        return replace(found, scores=found.scores / SCORE_STEPS)

    def _heaviest(self, weights: Mapping[str, float]) -> tuple[list[Postings], float]:
        """The words of largest weight in MOST_RELATED_TRIGGERS triggers, and their share of all.

        For each word: its sentences, the prefix length that completes it, and its weight.
        """
        found, room, wanted = [NO_POSTINGS], MOST_RELATED_TRIGGERS, 0
        for word, weight in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0])):
            number = self.word_number(word)
            if number is None:
                continue
            wanted += self._triggers_with(number)
            sentences, read = self._postings(number)
            many = np.cumsum(self._trigger_counts[sentences[:room]])
            few = int(np.searchsorted(many, room, side="right"))
            if few:
                found.append((sentences[:few], read[:few], np.full(few, weight, np.float32)))
                room -= int(many[few - 1])
        return found, (MOST_RELATED_TRIGGERS - room) / wanted if wanted else 1.0

    @cached_property
    def _trigger_counts(self) -> NDArray[np.int64]:
        """The number of triggers in each kept sentence."""
        return np.diff(self.arrays["sentence_starts"])

    @lru_cache(maxsize=65_536)  # noqa: B019
    def _triggers_with(self, number: int) -> int:
        """The number of triggers in sentences with a word."""
        return int(self._trigger_counts[self._postings(number)[0]].sum())

    def best_triggers(self, rows: CellRows, weights: Mapping[str, float]) -> list[int]:
        """The trigger (from 0) of each cell with the largest weight of words; ties: the first."""
        slots = self.store.slots(rows, top=TRIGGERS_SHOWN)
        numbers, which = np.unique(slots.number, return_inverse=True)
        wanted = self.store.sentences.rows(numbers).astype(np.int32)  # as postings are: no copies
        totals = np.zeros(len(which))
        for word, weight in weights.items():
            number = self.word_number(word)
            if number is None:
                continue
            sentences, read = self._postings(number)
            at = np.minimum(np.searchsorted(sentences, wanted), len(sentences) - 1)
            here = sentences[at] == wanted
            totals += weight * (here[which] & (read[at][which] <= slots.position))
        found = np.full(slots.mask.shape, -1.0)
        found[slots.mask] = totals
        best: list[int] = found.argmax(axis=1).tolist()
        return best

    def _common(self, number: int) -> Matches | None:
        """The precomputed counts of a common word, or None for another."""
        common = self.arrays["common_words"]
        place = int(np.searchsorted(common, number))
        if place == len(common) or common[place] != number:
            return None
        starts = self.arrays["common_starts"]
        part = slice(int(starts[place]), int(starts[place + 1]))
        return Matches.of(self.arrays["common_cells"][part], self.arrays["common_counts"][part])

    def _sentences_with(
        self, numbers: Sequence[int]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        """Sentences that contain every word, and the prefix length that completes the last one."""
        starts = self.arrays["word_starts"]
        rarest, *others = sorted(
            numbers, key=lambda number: int(starts[number + 1] - starts[number])
        )
        sentences, read = self._postings(rarest)
        until = np.zeros(len(self.arrays["sentence_starts"]) - 1, dtype=np.uint16)
        for number in others:
            these, when = self._postings(number)
            until[:] = 0
            until[these] = when  # at least 1 where the word is
            here = until[sentences]
            sentences, read = sentences[here > 0], np.maximum(read, here)[here > 0]
        return sentences, read

    def _postings(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        """The sentences that contain a word, and the prefix length that completes it."""
        starts = self.arrays["word_starts"]
        part = slice(int(starts[number]), int(starts[number + 1]))
        return self.arrays["word_sentences"][part], self.arrays["word_read"][part]
