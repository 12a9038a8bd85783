"""Fast lookup in a store of any size: tokens of a value, memories that promote a token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.errors import ConditionError, shorten
from ffmem.scan.settings import UNIT
from ffmem.store.cells import CellRows, sign_factor
from ffmem.store.kept_sentences import flat_indices
from ffmem.store.parquet_tables import (
    OTHER,
    PROBABILITY_COLUMN,
    End,
    all_pushes,
    by_token,
    end_column,
    read_column,
    rows_where,
    value_row,
)
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import (
    NUMBERS,
    WORDS,
    Condition,
    agreement_column,
    all_hold,
    cell_column,
)
from ffmem.store.search.index import (
    PUSHING,
    Arrays,
    fold_case,
    is_current_index,
    load_arrays,
    open_index,
    words_in,
)
from ffmem.store.slots import TRIGGERS_SHOWN

MOST_WORD_TRIGGERS = 50_000  # triggers that a question of several words looks at
MOST_RELATED_TRIGGERS = 200_000  # triggers that a question of related words looks at
SCORE_STEPS = 50_000  # of scores from 0 to 1, so that they fit into two bytes
Postings = tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.float32]]
NO_POSTINGS: Postings = (np.zeros(0, np.int32), np.zeros(0, np.uint16), np.zeros(0, np.float32))
STATISTICS = ("fires", "mean", "largest", "probability")
FILTERS: dict[str, Callable[[ScanStore], NDArray[Any]]] = {  # that conditions know besides
    "fire_rate": lambda store: store.fire_counts / max(store.manifest.counts["prefixes"], 1),
    "agreement": agreement_column,
    "layer": lambda store: store.cells.layer_column(),
    "sign": lambda store: store.cells.sign_column(),
    "expert": lambda store: store.cells.expert_column(),
}
TEXTS = (*WORDS, "sign", "expert")  # which have no order


@dataclass(frozen=True)
class TokenPush:
    """A token that a value promotes or suppresses: the logit that a coefficient of 1 adds."""

    token: int
    text: str
    logit: float


@dataclass(frozen=True, eq=False)
class Matches:
    """Cells that match a query, as rows of the store, each with a number; best first.

    `total` is the number of all matches if only the first are here. `looked_at` is the share of
    the places that were counted: 1 unless there were too many.
    """

    rows: CellRows
    scores: NDArray[Any]
    total: int
    looked_at: float = 1.0

    @classmethod
    def of(cls, rows: CellRows, scores: NDArray[Any], looked_at: float = 1.0) -> Matches:
        """All cells."""
        return cls(rows, scores, len(rows), looked_at)

    def by_score(self, most: int | None = None) -> Matches:
        """The same with the highest scores first, or `most` of them.

        It is quick for scores of one or two bytes.
        """
        rows, scores = self.rows, self.scores
        if most is not None and len(rows) > 2 * most and scores.dtype.kind == "u":
            lower = len(rows) - most  # at least so many scores are not wanted
            least = int(np.searchsorted(np.cumsum(np.bincount(scores)), lower, side="right"))
            high = scores >= least
            rows, scores = rows[high], scores[high]
        order = np.argsort(scores.max(initial=0) - scores, kind="stable")[:most]
        return replace(self, rows=rows[order], scores=scores[order])

    @classmethod
    def nothing(cls) -> Matches:
        """No cell."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)


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


def token_texts(store: ScanStore) -> tuple[str, ...]:
    """The text of every token."""
    return tuple(read_column(store, "vocabulary", "text").tolist())


@dataclass(frozen=True, eq=False)
class MemoryIndex:
    """Every query on the cells of a store. Thread-safe.

    It reads the prepared arrays. Without them, queries for tokens read the tables, with the same
    order of results, and the first query for words builds the arrays.
    """

    store: ScanStore
    words: tuple[str, ...] = field(repr=False)  # the text of every token
    index: Arrays | None = field(default=None, repr=False)

    @classmethod
    def open(
        cls, store: ScanStore, watch: Callable[[str], None] = lambda _name: None
    ) -> MemoryIndex:
        """Open the arrays, or build them: seconds for a small store, a minute for a large one."""
        return cls(store, token_texts(store), open_index(store, watch))

    @classmethod
    def at_once(cls, store: ScanStore) -> MemoryIndex:
        """Open the arrays if they exist; builds and writes nothing."""
        return cls(
            store, token_texts(store), load_arrays(store) if is_current_index(store) else None
        )

    @cached_property
    def arrays(self) -> Arrays:
        """The prepared arrays; built now if this index was opened without them."""
        return open_index(self.store) if self.index is None else self.index

    @cached_property
    def _values(self) -> IndexedValues | TableValues:
        """The ends of all values."""
        indexed = self.index is not None and self.store.has_rankings
        return IndexedValues(self.arrays) if indexed else TableValues(self.store)

    def warm(self) -> None:
        """Precompute what the first queries would wait for; a second for a million cells."""
        self.token_ids("")
        self.with_weights({})  # compiles its loop
        for name in STATISTICS:
            if name != "probability" or self.store.has_rankings:
                self.order(name)

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token, text in enumerate(self.words):
            found.setdefault(text, []).append(token)
        return found

    def token_ids(self, text: str) -> list[int]:
        """The tokens whose text is this, also with a space in front; or only without one."""
        spellings = [text] if text.startswith(" ") else [text, " " + text]
        found = [token for one in spellings for token in self._ids.get(one, ())]
        return found or self._ids.get(text.removeprefix(" "), [])

    def pieces(self, text: str) -> list[str]:
        """The fewest tokens that make up a text; empty if the vocabulary cannot spell it."""
        best: list[list[str] | None] = [[], *[None] * len(text)]
        longest = max(map(len, self.words), default=0)
        for end in range(1, len(text) + 1):
            for start in range(max(0, end - longest), end):
                before, part = best[start], text[start:end]
                if before is None or part not in self._ids:
                    continue
                if best[end] is None or len(before) + 1 < len(best[end] or ()):
                    best[end] = [*before, part]
        return best[-1] or []

    def value_tokens(
        self, cell: Address, end: End = "promoted", count: int = 20
    ) -> list[TokenPush]:
        """The tokens that a cell promotes most, or suppresses; strongest first."""
        row, sign = self.store.cells.memory(cell), sign_factor(cell)
        stored = OTHER[end] if sign < 0 else end
        tokens, logits = self._values.ends(row, stored)
        return [
            TokenPush(token, self.words[token], sign * logit)
            for token, logit in zip(tokens[:count].tolist(), logits[:count].tolist(), strict=True)
        ]

    def top_texts(self, rows: CellRows, count: int) -> list[list[str]]:
        """The texts of the tokens that each of some cells promotes most."""
        if self.index is None or not self.store.has_rankings:
            cells = self.store.cells.addresses(rows)
            return [[one.text for one in self.value_tokens(cell, count=count)] for cell in cells]
        memories, negative = self.store.cells.memories_of(rows)
        tokens = self.arrays["promoted"][memories, :count]
        if negative.any():
            tokens = np.where(
                negative[:, None], self.arrays["suppressed"][memories, :count], tokens
            )
        words = self.words
        return [[words[token] for token in row] for row in tokens.tolist()]

    def logits_at(self, rows: CellRows, ranks: CellRows, end: End) -> list[float]:
        """For each of some cells, the logit of the token at a rank (from 0) of an end."""
        if self.index is None:
            places = zip(self.store.cells.addresses(rows), ranks.tolist(), strict=True)
            return [self.value_tokens(cell, end)[rank].logit for cell, rank in places]
        memories, negative = self.store.cells.memories_of(rows)
        own, other = self.arrays[f"{end}_logits"], self.arrays[f"{OTHER[end]}_logits"]
        logits = np.where(negative, -other[memories, ranks], own[memories, ranks])
        return list(logits.tolist())

    def promoters(self, token: int, end: End = "promoted") -> Matches:
        """The cells that have a token among those they promote (or suppress), best rank first."""
        return Matches.of(*self._values.pushing(token, end))

    def ending_in(self, token: int) -> Matches:
        """The cells with two or more triggers that end in a token, most first."""
        table = rows_where(self.store, "endings", "token", token)
        rows = self.store.cells.first_rows(table["layer"]) + table["cell"]
        counts = table["count"]
        order = np.lexsort((rows, -counts))
        return Matches.of(rows[order], counts[order])

    @lru_cache(maxsize=16)  # noqa: B019 - one lookup lives as long as its process
    def statistic(self, name: str) -> NDArray[Any]:
        """One number for every cell: fires, mean, largest, probability, or one of its weights.

        Also `positive`, how often its coefficient is above 0, if firing has another threshold.
        """
        store = self.store
        match name:
            case "fires":
                return store.fire_counts.astype(np.int64)
            case "positive":
                return store.positive_counts.astype(np.int64)
            case "mean":
                fires, totals = store.positive_counts, store.array("totals")
                return (totals * UNIT / np.maximum(fires, 1)).astype(np.float32)
            case "probability":
                found = np.empty(store.cells.count, dtype=np.float32)
                for sign in store.cells.signs:
                    end: End = "suppressed" if sign == "-" else "promoted"
                    found[store.cells.rows_with(sign)] = self._values.probability(end)
                return found
            case _ if name in FILTERS:
                return FILTERS[name](store)
            case _ if name in (*NUMBERS, *WORDS):
                return cell_column(store, name)
            case _:
                return np.asarray(store.array(name))

    def where(self, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
        """The cells for which every condition on statistics and weights holds."""
        known = (*STATISTICS, "positive", *FILTERS, *NUMBERS, *WORDS)
        for condition in conditions:
            if condition.column not in known:
                raise ConditionError(
                    f"memories have no {shorten(condition.column)!r}; choose among "
                    f"{', '.join(known)}"
                )
        return self._holding(tuple(conditions))

    @lru_cache(maxsize=32)  # noqa: B019
    def _holding(self, conditions: tuple[Condition, ...]) -> NDArray[np.bool_]:
        columns = {one.column: self.statistic(one.column) for one in conditions}
        return all_hold(conditions, columns, self.store.cells.count)

    @lru_cache(maxsize=16)  # noqa: B019
    def order(self, name: str) -> NDArray[np.int32]:
        """All rows by a statistic, the largest first; ties by row."""
        return np.argsort(-self.statistic(name), kind="stable").astype(np.int32)

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

    def first_endings(self, rows: CellRows, token: int) -> list[int]:
        """For each of some cells, the strongest trigger (from 0) that ends in a token."""
        slots, kept = self.store.slots(rows), self.store.sentences
        found = np.zeros(slots.mask.shape, bool)
        found[slots.mask] = kept.tokens[kept.starts[slots.sentence] + slots.position - 1] == token
        ranks: list[int] = found.argmax(axis=1).tolist()
        return ranks

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


@dataclass(frozen=True, eq=False)
class IndexedValues:
    """The ends of values from the prepared arrays: every answer is a slice."""

    arrays: Arrays

    def ends(self, memory: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tokens at one end of a value, strongest first, and their logits."""
        return self.arrays[end][memory], self.arrays[f"{end}_logits"][memory]

    def pushing(self, token: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of the cells that have a token at an end, in order, and its rank in each."""
        (kind,) = (name for name, pushed in PUSHING.items() if pushed == end)
        start, stop = self.arrays[f"{kind}_starts"][token : token + 2].tolist()
        rows, ranks = self.arrays[f"{kind}_rows"], self.arrays[f"{kind}_ranks"]
        return rows[start:stop], ranks[start:stop]

    def probability(self, end: End) -> NDArray[np.float32]:
        """Of every memory, the probability of the end's first token."""
        return self.arrays[PROBABILITY_COLUMN[end]]


@dataclass(frozen=True, eq=False)
class TableValues:
    """The ends of values from the scan's table: every answer reads only the parts it needs.

    Before values are ranked each has no tokens, and questions about all of them are refused.
    """

    store: ScanStore

    def ends(self, memory: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tokens at one end of a value, strongest first, and their logits."""
        if not self.store.has_rankings:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        tokens, logits = value_row(self.store, [end, f"{end}_logits"], memory)
        return tokens, logits

    def pushing(self, token: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of the cells that have a token at an end, in order, and its rank in each."""
        starts, rows, ranks = by_token(all_pushes(self.store, end).with_token(token), token + 1)
        return rows[starts[token] : starts[token + 1]], ranks[starts[token] : starts[token + 1]]

    def probability(self, end: End) -> NDArray[np.float32]:
        """Of every memory, the probability of the end's first token."""
        return end_column(self.store, PROBABILITY_COLUMN[end])
