"""Memories by what they promote, by words of their triggers, by pattern, or by a statistic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.explorer.explored import Explored
from ffmem.explorer.queries.agreement import agreements
from ffmem.explorer.queries.found_patterns import found_patterns
from ffmem.store.lookup import STATISTICS, End, Found

By = Literal["promotes", "suppresses", "words", "pattern", "meaning", "any", "dead"]
Sort = Literal["score", "address", "fires", "mean", "largest", "probability", "agreement"]
BY: tuple[By, ...] = get_args(By)
SORTS: tuple[Sort, ...] = get_args(Sort)
TOKENS = 5  # that a value promotes, shown of each memory
MOST = 10_000  # memories of one answer that can be paged through or downloaded
SCORES: dict[By, str] = {
    "promotes": "Rank",
    "suppresses": "Rank",
    "words": "Triggers of 25",
    "pattern": "Covered",
    "meaning": "Of its largest",
    "any": "",
    "dead": "",
}


@dataclass(frozen=True)
class Question:
    """What is searched for; `text` is a token, words, part of a pattern, or a phrase.

    Scores come best first, addresses in order, statistics largest first; `reverse` turns it round.
    """

    by: By
    text: str = ""
    layer: int | None = None
    sort: Sort = "score"
    reverse: bool = False


@dataclass(frozen=True)
class Hit:
    """One memory in a table of them."""

    address: str
    score: float | None
    promotes: tuple[str, ...]
    fires: int
    mean: float
    largest: float
    probability: float
    agreement: float | None


@dataclass(frozen=True)
class Answer:
    """A page of hits, and how many there are in all."""

    question: Question
    score: str  # what the score is
    total: int
    first: int  # number of the first hit on this page, from 0
    hits: tuple[Hit, ...]


def answer(
    explored: Explored, question: Question, first: int, count: int, firing: Found | None = None
) -> Answer:
    """One page of what is found; `firing` is what the model said of a meaning."""
    found, total = ordered(explored, question, firing)
    part = Found(found.rows[first : first + count], found.scores[first : first + count])
    return Answer(question, SCORES[question.by], total, first, hits(explored, part, question.by))


@lru_cache(maxsize=256)
def ordered(
    explored: Explored, question: Question, firing: Found | None = None
) -> tuple[Found, int]:
    """The first MOST memories in the order asked for, and how many there are in all."""
    found = candidates(explored, question) if firing is None else firing
    if question.layer is not None:
        rows = explored.lookup.layer_rows(question.layer)
        inside = (found.rows >= rows.start) & (found.rows < rows.stop)
        found = Found(found.rows[inside], found.scores[inside])
    found = in_order(explored, found, question)
    return Found(found.rows[:MOST].copy(), found.scores[:MOST].copy()), len(found.rows)


def candidates(explored: Explored, question: Question) -> Found:
    """Every memory that fits, best first, before layer and order are looked at."""
    lookup = explored.lookup
    match question.by:
        case "promotes" | "suppresses":
            end: End = "promoted" if question.by == "promotes" else "suppressed"
            parts = [lookup.pushing(token, end) for token in lookup.token_ids(question.text)]
            return joined(parts)
        case "words":
            return lookup.with_words(question.text)
        case "pattern":
            return with_pattern(explored, question.text)
        case "dead":
            rows = np.flatnonzero(lookup.statistic("fires") == 0)
            return Found(rows, np.zeros(len(rows)))
        case _:
            return Found(np.arange(lookup.cells), np.zeros(lookup.cells))


def joined(parts: list[Found]) -> Found:
    """Several answers as one; lower scores (ranks) first."""
    if not parts:
        return Found.nothing()
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(scores, kind="stable")
    return Found(rows[order], scores[order])


def with_pattern(explored: Explored, text: str) -> Found:
    """Memories that have a pattern with these letters in its description or kind."""
    wanted, best = text.casefold(), {}
    for address, patterns in found_patterns(explored.folder).by_address.items():
        covered = [
            pattern.covered
            for pattern in patterns
            if wanted in f"{pattern.description} {pattern.kind}".casefold()
        ]
        if covered:
            best[address] = max(covered)
    rows = [explored.store.row(Address.parse(address)) for address in best]
    scores = np.array(list(best.values()), dtype=np.float64)
    order = np.argsort(-scores, kind="stable")
    return Found(np.array(rows, dtype=np.int64)[order], scores[order])


def in_order(explored: Explored, found: Found, question: Question) -> Found:
    """The same memories as the question wants them sorted."""
    whole = question.by == "any" and question.layer is None
    order: NDArray[Any]
    match question.sort:
        case "score":
            order = np.arange(len(found.rows))
        case "address":
            order = np.argsort(found.rows, kind="stable")
        case name if whole and name != "agreement":
            order = explored.lookup.order(name)
        case name:
            order = np.argsort(-statistic(explored, name)[found.rows], kind="stable")
    order = order[::-1] if question.reverse else order
    return Found(found.rows[order], found.scores[order])


def statistic(explored: Explored, name: str) -> NDArray[Any]:
    """One number for every cell."""
    if name != "agreement":
        return explored.lookup.statistic(name)
    known = agreements(explored.folder, explored.lookup.cells)
    return np.zeros(explored.lookup.cells) if known is None else known.share


def hits(explored: Explored, found: Found, by: By) -> tuple[Hit, ...]:
    """The rows of a table."""
    lookup, rows = explored.lookup, found.rows
    known = agreements(explored.folder, lookup.cells)
    columns = [lookup.statistic(name)[rows].tolist() for name in STATISTICS]
    agreeing = [None] * len(rows) if known is None else known.share[rows].tolist()
    scores = [None] * len(rows) if not SCORES[by] else found.scores.tolist()
    return tuple(
        Hit(
            address=str(cell),
            score=score,
            promotes=tuple(push.text for push in lookup.pushes(cell, count=TOKENS)),
            fires=fires,
            mean=mean,
            largest=largest,
            probability=probability,
            agreement=agreement,
        )
        for cell, score, agreement, fires, mean, largest, probability in zip(
            lookup.addresses(rows), scores, agreeing, *columns, strict=True
        )
    )
