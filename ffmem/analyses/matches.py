"""Which memories match a question: by what they promote, words of triggers, pattern, statistic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address, Sign
from ffmem.analyses.inputs.related_words import RelatedWords
from ffmem.analyses.patterns.by_memory import StudyPatterns, study_patterns
from ffmem.analyses.patterns.record import Pattern
from ffmem.store.parquet_tables import End
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import (
    AgreementTable,
    Condition,
    NumberColumn,
    agreement_table,
    parse_conditions,
)
from ffmem.store.search.index import words_in
from ffmem.store.search.lookup import STATISTICS, MemoryIndex
from ffmem.store.search.matching_cells import Matches
from ffmem.store.slots import TRIGGERS_SHOWN

By = Literal[
    "promotes", "suppresses", "ends", "words", "meaning", "pattern", "phrase", "any", "dead"
]
Sort = Literal[
    "score",
    "address",
    "fires",
    "mean",
    "largest",
    "probability",
    "agreement",
    NumberColumn,
]
CLEAR_TRIGGERS = 3  # with a word from which on a memory clearly fires on it, as in the paper
CLEAR_RANKS = 5  # of a value within which it clearly promotes a token,
CLEAR_SHARE = 0.5  # with at least this much of the logit of its first
NO_WORDS = RelatedWords((), np.zeros((0, 1), np.float32))


@dataclass(frozen=True, eq=False)
class MemorySearch:
    """What is searched: the index of a scan's memories, and the words of its text by meaning."""

    index: MemoryIndex
    related: RelatedWords = NO_WORDS

    @property
    def store(self) -> ScanStore:
        """The scan."""
        return self.index.store


@dataclass(frozen=True)
class Question:
    """What is searched for; `text` is a token, words, part of a pattern, or a phrase.

    Scores come best first, addresses in order, statistics largest first; `reverse` turns it round.
    `where` are conditions on statistics and weights, as in `class=weakening, value_norm>2`.
    """

    by: By
    text: str = ""
    layer: int | None = None
    sort: Sort = "score"
    reverse: bool = False
    where: str = ""
    sign: Sign = ""
    fires_from: float | None = None  # percent of prefixes
    fires_to: float | None = None
    agrees: float | None = None  # percent of triggers, at least
    kind: str = ""  # class of the weights
    clear: bool = False  # only those that a person would name for it, the strongest first

    @property
    def is_empty(self) -> bool:
        """Whether a text is needed and not given."""
        return self.by not in ("any", "dead") and not self.text

    @property
    def is_plain(self) -> bool:
        """Whether everything that fits is wanted, best first."""
        best_first = self.sort == "score" and not self.reverse and not self.clear
        return best_first and self.layer is None and not self.conditions

    @property
    def filters(self) -> tuple[Condition, ...]:
        """The conditions of the single fields."""
        wanted = (
            ("sign", "=", self.sign or None),
            ("fire_rate", ">=", None if self.fires_from is None else self.fires_from / 100),
            ("fire_rate", "<=", None if self.fires_to is None else self.fires_to / 100),
            ("agreement", ">=", None if self.agrees is None else self.agrees / 100),
            ("class", "=", self.kind or None),
        )
        return tuple(
            Condition(column, comparison, str(value))
            for column, comparison, value in wanted
            if value is not None
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All of them."""
        return (*parse_conditions(self.where), *self.filters)


@dataclass(frozen=True)
class Results:
    """The results of analyses that a search reads; replaced when they have run again."""

    patterns: StudyPatterns
    agreement: AgreementTable | None
    has_weights: bool


def results_of(study: MemorySearch) -> Results:
    """The results as they are now."""
    folder, cells = study.store.folder, study.store.cells.count
    agreement = agreement_table(folder, cells)
    return Results(study_patterns(folder), agreement, folder.weights.exists())


@lru_cache(maxsize=256)
def order_matches(study: MemorySearch, question: Question, most: int, _results: Results) -> Matches:
    """The first memories, `most` of them, in the order asked for."""
    if question.by == "any":
        return _any_memories(study, question, most)
    first = most if question.is_plain else None
    return in_order(study, question, most, candidates(study, question, first))


def in_order(study: MemorySearch, question: Question, most: int, found: Matches) -> Matches:
    """The first of what was found, best first until now, in the order asked for."""
    found = _clear_ones(study, question, found) if question.clear else found
    rows, scores, total = found.rows, found.scores, found.total
    if conditions := question.conditions:
        here = study.index.where(conditions)[rows]
        rows, scores = rows[here], scores[here]
        total = len(rows)
    if question.layer is not None:
        inside = study.store.cells.rows_of(question.layer)
        here = (rows >= inside.start) & (rows < inside.stop)
        rows, scores = rows[here], scores[here]
        total = len(rows)
    if question.sort != "score" or question.reverse:
        first = _first_places(study, rows, question, most)
        rows, scores = rows[first], scores[first]
    return Matches(rows[:most].astype(np.int64), scores[:most].copy(), total, found.looked_at)


def _clear_ones(study: MemorySearch, question: Question, found: Matches) -> Matches:
    """Those of the memories with a token or word in which it is clear, the strongest first.

    Keys by the number of their triggers with it; values by what they add to its logit at their
    mean coefficient.
    """
    rows, scores = found.rows, found.scores
    if question.by in ("words", "ends"):
        here = scores >= CLEAR_TRIGGERS
        return Matches.of(rows[here], scores[here], found.looked_at)
    if question.by not in ("promotes", "suppresses"):
        return found
    near = scores < CLEAR_RANKS
    rows, scores = rows[near], scores[near].astype(np.int64)
    end: End = "promoted" if question.by == "promotes" else "suppressed"
    logits = np.array(study.index.logits_at(rows, scores, end))
    first = np.array(study.index.logits_at(rows, np.zeros_like(scores), end))
    adds = np.abs(logits) * study.index.statistic("mean")[rows]
    order = np.argsort(-adds, kind="stable")
    order = order[(np.abs(logits) >= CLEAR_SHARE * np.abs(first))[order]]
    _, places = np.unique(rows[order], return_index=True)  # of two spellings the stronger one
    order = order[np.sort(places)]
    return Matches.of(rows[order], scores[order])


def _any_memories(study: MemorySearch, question: Question, most: int) -> Matches:
    """All memories, or all of a layer, in the order asked for."""
    index = study.index
    order: NDArray[Any]
    conditions = question.conditions
    if question.layer is None and question.sort in STATISTICS and not conditions:
        order = index.order(question.sort)
        order, total = (order[::-1] if question.reverse else order), len(order)
    else:
        cells = study.store.cells
        every = slice(0, cells.count)
        inside = every if question.layer is None else cells.rows_of(question.layer)
        rows = np.arange(inside.start, inside.stop)
        if conditions:
            rows = rows[index.where(conditions)[rows]]
        order, total = rows[_first_places(study, rows, question, most)], len(rows)
    return Matches(order[:most].astype(np.int64), np.zeros(min(total, most)), total)


def _first_places(
    study: MemorySearch, rows: NDArray[Any], question: Question, most: int
) -> NDArray[np.intp]:
    """Places of the first of `rows` in the order asked for; the rest is left unsorted."""
    if question.sort == "score":
        every = np.arange(len(rows))
        return (every[::-1] if question.reverse else every)[:most]
    natural = -rows if question.sort == "address" else statistic(study, question.sort)[rows]
    numbers = natural if question.reverse else -natural
    few = np.argpartition(numbers, most)[:most] if len(rows) > 2 * most else np.arange(len(rows))
    return few[np.lexsort((rows[few], numbers[few]))]


def candidates(study: MemorySearch, question: Question, first: int | None) -> Matches:
    """The memories that fit, best first, before layer and order are looked at.

    `first` is how many of them are wanted; None wants all.
    """
    index = study.index
    if question.is_empty:
        return Matches.nothing()
    match question.by:
        case "promotes" | "suppresses":
            end: End = "promoted" if question.by == "promotes" else "suppressed"
            tokens = index.token_ids(question.text)
            return _join_matches([index.promoters(token, end) for token in tokens])
        case "ends":
            tokens = index.token_ids(question.text)
            return _join_matches([index.ending_in(token) for token in tokens], rising=False)
        case "words":
            return index.trigger_words.with_words(question.text, first)
        case "meaning":
            return with_meaning(study, question.text, first)
        case "pattern":
            return with_pattern(study, question.text)
        case "dead":
            rows = np.flatnonzero(index.statistic("positive") == 0)
            return Matches.of(rows, np.zeros(len(rows)))
        case _:
            return Matches.nothing()


def _join_matches(parts: list[Matches], rising: bool = True) -> Matches:
    """Several answers as one; lower scores first, such as ranks, unless higher ones are better."""
    if len(parts) < 2:
        return parts[0] if parts else Matches.nothing()
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(scores if rising else -scores, kind="stable")
    return Matches(rows[order], scores[order], sum(part.total for part in parts))


def with_pattern(study: MemorySearch, text: str) -> Matches:
    """Memories that have a pattern with these letters in its description or kind."""

    def score(pattern: Pattern) -> float:
        return coverage(pattern) if has_letters(pattern, text) else 0.0

    found = _best_patterns(study, score)
    known = len(study_patterns(study.store.folder).by_address)
    return replace(found, looked_at=known / max(study.store.cells.count, 1))


def coverage(pattern: Pattern) -> float:
    """The share of the triggers shown that a pattern covers."""
    return len(pattern.ranks) / TRIGGERS_SHOWN


def has_letters(pattern: Pattern, text: str) -> bool:
    """Whether a pattern's description or kind has these letters."""
    return text.casefold() in f"{pattern.description} {pattern.kind}".casefold()


def _best_patterns(study: MemorySearch, score: Callable[[Pattern], float]) -> Matches:
    """Memories by the best score of their patterns, without those that have nothing above 0."""
    every = study_patterns(study.store.folder).by_address.items()
    best = {address: max(map(score, patterns), default=0.0) for address, patterns in every}
    some = {address: number for address, number in best.items() if number > 0}
    rows = [study.store.cells.row(Address.parse(address)) for address in some]
    scores = np.array(list(some.values()), dtype=np.float64)
    return Matches.of(np.array(rows, dtype=np.int64), scores).by_score()


def with_meaning(study: MemorySearch, phrase: str, first: int | None) -> Matches:
    """Memories whose triggers, or patterns, hold the words of a phrase or related ones."""
    weights, asked = study.related.weights(phrase)

    def score(pattern: Pattern) -> float:
        total = sum(weights.get(word, 0.0) for word in words_in(pattern.description))
        return coverage(pattern) * min(total / max(asked, 1), 1.0)

    patterns = _best_patterns(study, score)
    if not patterns.total:
        return study.index.trigger_words.with_weights(weights, max(asked, 1), first)
    triggers = study.index.trigger_words.with_weights(weights, max(asked, 1))
    rows = np.concatenate([triggers.rows, patterns.rows])
    order = np.argsort(-np.concatenate([triggers.scores, patterns.scores]), kind="stable")
    _, places = np.unique(rows[order], return_index=True)  # of each the better score
    best = order[np.sort(places)]
    scores = np.concatenate([triggers.scores, patterns.scores])[best]
    return Matches.of(rows[best], scores, triggers.looked_at)


def check_layer(store: ScanStore, layer: int | None) -> None:
    """A layer that is not there finds nothing, and a person should know why."""
    if layer is not None:
        store.cells.check_layer(layer)


def statistic(study: MemorySearch, name: str) -> NDArray[Any]:
    """One number for every cell."""
    if name != "agreement":
        return study.index.statistic(name)
    known = agreement_table(study.store.folder, study.store.cells.count)
    return np.zeros(study.store.cells.count) if known is None else known.share
