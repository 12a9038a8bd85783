"""Memories that match a question, as rows of a table, each with what it was found by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.analyses.matches import (
    By,
    MemorySearch,
    Question,
    coverage,
    has_letters,
    in_order,
    order_matches,
    results_of,
)
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.analyses.patterns.record import Pattern
from ffmem.store.memory_page import Evidence, evidence
from ffmem.store.parquet_tables import End
from ffmem.store.search.columns import NUMBERS, agreement_table
from ffmem.store.search.index import words_in
from ffmem.store.search.lookup import STATISTICS
from ffmem.store.search.matching_cells import Matches
from ffmem.store.slots import TRIGGERS_SHOWN, single_triggers

TOKENS = 5  # that a value promotes, shown of each memory

MOST_HITS = 2_000  # memories of one answer that can be paged through
MOST_SAVED = 10_000  # or downloaded
SCORES: dict[By, str] = {
    "promotes": "Rank",
    "suppresses": "Rank",
    "ends": "Triggers",
    "words": f"Triggers of {TRIGGERS_SHOWN}",
    "meaning": "Nearness",
    "pattern": "Triggers covered",
    "phrase": "Of its largest",
    "any": "",
    "dead": "",
}


NOT_IN_TABLES = ("logit", "pattern", "evidence")  # are there for a page of hits, not for thousands


@dataclass  # not frozen: a page has dozens, and a frozen one takes four times as long to make
class Hit:
    """One memory in a table of them."""

    address: str
    score: float | None
    promotes: tuple[str, ...]
    fires: int
    mean: float
    largest: float
    probability: float | None  # none before values are ranked
    agreement: float | None
    kind: str | None = None  # the class of its weights, where they were analysed
    weight: float | None = None  # the column of the weights that hits are sorted by
    logit: float | None = None  # of the token that was looked for
    pattern: str | None = None  # what was looked for is in it
    evidence: Evidence | None = None  # the trigger that shows why it was found


@dataclass(frozen=True)
class SearchAnswer:
    """A page of hits, and how many there are in all."""

    question: Question
    score: str  # what the score is
    total: int
    looked_at: float  # share of the triggers, or of the memories with patterns, that were counted
    first: int  # number of the first hit on this page, from 0
    hits: tuple[Hit, ...]


def answer(
    study: MemorySearch,
    question: Question,
    first: int,
    count: int,
    firing: Matches | None = None,
    explained: bool = True,
) -> SearchAnswer:
    """One page of what is found, with the reason where that is to be `explained`.

    `firing` is what the model said of a phrase.
    """
    most = MOST_HITS if first + count <= MOST_HITS else max(MOST_SAVED, first + count)
    found = (
        order_matches(study, question, most, results_of(study))
        if firing is None
        else in_order(study, question, most, firing)
    )
    shown = slice(first, first + count)
    rows, scores = found.rows[shown], found.scores[shown]
    return SearchAnswer(
        question=question,
        score=SCORES[question.by],
        total=found.total,
        looked_at=found.looked_at,
        first=first,
        hits=hits(study, rows, scores, question, explained=explained),
    )


def hits(
    study: MemorySearch,
    rows: NDArray[np.int64],
    numbers: NDArray[Any],
    question: Question,
    explained: bool = True,
) -> tuple[Hit, ...]:
    """The rows of a table, with what each was found by where that is to be `explained`."""
    if not len(rows):
        return ()
    index, nothing = study.index, [None] * len(rows)
    known = agreement_table(study.store.folder, study.store.cells.count)
    names = list(map(str, study.store.cells.addresses(rows)))
    columns = (  # in the order of a hit's fields
        names,
        numbers.tolist() if SCORES[question.by] else nothing,
        map(tuple, index.top_texts(rows, TOKENS)),
        *(
            index.statistic(name)[rows].tolist()
            if name != "probability" or study.store.has_rankings
            else nothing
            for name in STATISTICS
        ),
        nothing if known is None else known.share[rows].tolist(),
        *_weight_fields(study, rows, question.sort),
        *(reasons(study, names, rows, numbers, question) if explained else [nothing] * 3),
    )
    return tuple(Hit(*fields) for fields in zip(*columns, strict=True))


def reasons(
    study: MemorySearch,
    names: Sequence[str],
    rows: NDArray[np.int64],
    numbers: NDArray[Any],
    question: Question,
) -> tuple[Sequence[float | None], list[str | None], list[Evidence | None]]:
    """Of each cell the logit, the pattern and the trigger that it was found by."""
    weights = _search_words(study, question)
    patterns = _pattern_per_memory(study, names, question, weights)
    if question.by == "ends":
        ranks = first_endings(study, rows, question.text)
    elif weights:
        ranks = study.index.trigger_words.best_triggers(rows, weights)
    else:
        ranks = [0 if pattern is None else pattern.ranks[0] - 1 for pattern in patterns]
    triggers = single_triggers(study.store, rows, ranks)
    return (
        _token_logits(study, rows, numbers, question),
        [None if pattern is None else pattern.text for pattern in patterns],
        [
            None if trigger is None else evidence(trigger, rank + 1, weights)
            for trigger, rank in zip(triggers, ranks, strict=True)
        ],
    )


def first_endings(study: MemorySearch, rows: NDArray[np.int64], text: str) -> list[int]:
    """Of each cell the first trigger (from 0) that ends in a token with this text."""
    tokens = study.index.token_ids(text)
    found = np.array([study.index.first_endings(rows, token) for token in tokens])
    return list(found.max(axis=0).tolist())


def _search_words(study: MemorySearch, question: Question) -> dict[str, float]:
    """The words that triggers are searched for, with their weights; none for other questions."""
    if question.by == "words":
        return dict.fromkeys(words_in(question.text), 1.0)
    return study.related.weights(question.text)[0] if question.by == "meaning" else {}


def _pattern_per_memory(
    study: MemorySearch, names: Sequence[str], question: Question, weights: Mapping[str, float]
) -> list[Pattern | None]:
    """Of each memory the pattern that fits a question best, where patterns are searched."""
    if question.by not in ("pattern", "meaning"):
        return [None] * len(names)
    known = study_patterns(study.store.folder)

    def fits(pattern: Pattern) -> bool:
        if question.by == "pattern" and has_letters(pattern, question.text):
            return True
        return any(word in weights for word in words_in(pattern.description))

    return [max(filter(fits, known.of(name)), key=coverage, default=None) for name in names]


def _token_logits(
    study: MemorySearch, rows: NDArray[np.int64], ranks: NDArray[Any], question: Question
) -> Sequence[float | None]:
    """The logit that a coefficient of 1 adds to the searched token."""
    if question.by not in ("promotes", "suppresses"):
        return [None] * len(rows)
    end: End = "promoted" if question.by == "promotes" else "suppressed"
    return study.index.logits_at(rows, ranks.astype(np.int64), end)


def _weight_fields(
    study: MemorySearch, rows: NDArray[np.int64], sort: str
) -> tuple[list[str | None], list[float | None]]:
    """The classes of some cells, and the column of the weights that they are sorted by."""
    nothing: list[Any] = [None] * len(rows)
    index = study.index
    if not study.store.folder.weights.exists():
        return nothing, nothing
    kinds = index.statistic("class")[rows].tolist()
    return kinds, index.statistic(sort)[rows].tolist() if sort in NUMBERS else nothing
