"""Memories by what they promote, by words of their triggers, by pattern, or by a statistic."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.pattern_results import pattern_results
from ffmem.explorer.queries.prompt import token_ids
from ffmem.explorer.queries.trigger_agreement import agreement_table
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.store.lookup import STATISTICS, Matches
from ffmem.store.parquet_tables import End
from ffmem.store.slots import TRIGGERS_SHOWN
from ffmem.store.weight_columns import NUMBERS, NumberColumn, parse_conditions

By = Literal["promotes", "suppresses", "words", "pattern", "meaning", "any", "dead"]
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
TOKENS = 5  # that a value promotes, shown of each memory
MOST = 2_000  # memories of one answer that can be paged through
MOST_SAVED = 10_000  # or downloaded
SCORES: dict[By, str] = {
    "promotes": "Rank",
    "suppresses": "Rank",
    "words": f"Triggers of {TRIGGERS_SHOWN}",
    "pattern": "Covered",
    "meaning": "Of its largest",
    "any": "",
    "dead": "",
}


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
    kind: str | None = None  # the class of its weights, where they were analysed
    weight: float | None = None  # the column of the weights that hits are sorted by


@dataclass(frozen=True)
class Answer:
    """A page of hits, and how many there are in all."""

    question: Question
    score: str  # what the score is
    total: int
    looked_at: float  # share of the triggers that were counted, 1 unless they are too many
    first: int  # number of the first hit on this page, from 0
    hits: tuple[Hit, ...]


def answer(
    explored: StudyContext,
    question: Question,
    first: int,
    count: int,
    firing: Matches | None = None,
) -> Answer:
    """One page of what is found; `firing` is what the model said of a meaning."""
    most = MOST if first + count <= MOST else MOST_SAVED
    found = order_matches(explored, question, most, firing)
    shown = slice(first, first + count)
    return Answer(
        question=question,
        score=SCORES[question.by],
        total=found.total,
        looked_at=found.looked_at,
        first=first,
        hits=hits(explored, found.rows[shown], found.scores[shown], question),
    )


@lru_cache(maxsize=256)
def order_matches(
    explored: StudyContext, question: Question, most: int, firing: Matches | None = None
) -> Matches:
    """The first memories, `most` of them, in the order asked for."""
    if question.by == "any":
        return any_memories(explored, question, most)
    as_found = question.sort == "score" and question.layer is None and not question.reverse
    found = firing or candidates(explored, question)
    rows, scores, total = found.rows, found.scores, found.total
    if question.where:
        here = explored.lookup.where(parse_conditions(question.where))[rows]
        rows, scores = rows[here], scores[here]
        total = len(rows)
    if question.layer is not None:
        inside = explored.store.cells.rows_of(question.layer)
        here = (rows >= inside.start) & (rows < inside.stop)
        rows, scores = rows[here], scores[here]
        total = len(rows)
    if not as_found:
        first = first_places(explored, rows, question, most)
        rows, scores = rows[first], scores[first]
    return Matches(rows[:most].astype(np.int64), scores[:most].copy(), total, found.looked_at)


def any_memories(explored: StudyContext, question: Question, most: int) -> Matches:
    """All memories, or all of a layer, in the order asked for."""
    lookup = explored.lookup
    order: NDArray[Any]
    if question.layer is None and question.sort in STATISTICS and not question.where:
        order = lookup.order(question.sort)
        order, total = (order[::-1] if question.reverse else order), len(order)
    else:
        cells = explored.store.cells
        every = slice(0, cells.count)
        inside = every if question.layer is None else cells.rows_of(question.layer)
        rows = np.arange(inside.start, inside.stop)
        if question.where:
            rows = rows[lookup.where(parse_conditions(question.where))[rows]]
        order, total = rows[first_places(explored, rows, question, most)], len(rows)
    return Matches(order[:most].astype(np.int64), np.zeros(min(total, most)), total)


def first_places(
    explored: StudyContext, rows: NDArray[Any], question: Question, most: int
) -> NDArray[np.intp]:
    """Places of the first of `rows` in the order asked for; the rest is left unsorted."""
    if question.sort == "score":
        every = np.arange(len(rows))
        return (every[::-1] if question.reverse else every)[:most]
    natural = -rows if question.sort == "address" else statistic(explored, question.sort)[rows]
    numbers = natural if question.reverse else -natural
    few = np.argpartition(numbers, most)[:most] if len(rows) > 2 * most else np.arange(len(rows))
    return few[np.lexsort((rows[few], numbers[few]))]


def candidates(explored: StudyContext, question: Question) -> Matches:
    """The memories that fit, best first, before layer and order are looked at."""
    lookup = explored.lookup
    match question.by:
        case "promotes" | "suppresses":
            end: End = "promoted" if question.by == "promotes" else "suppressed"
            tokens = lookup.token_ids(question.text)
            return join_matches([lookup.promoters(token, end) for token in tokens])
        case "words":
            return lookup.with_words(question.text)
        case "pattern":
            return with_pattern(explored, question.text)
        case "dead":
            rows = np.flatnonzero(lookup.statistic("positive") == 0)
            return Matches.of(rows, np.zeros(len(rows)))
        case _:
            return Matches.nothing()


def join_matches(parts: list[Matches]) -> Matches:
    """Several answers as one; lower scores (ranks) first."""
    if len(parts) < 2:
        return parts[0] if parts else Matches.nothing()
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(scores, kind="stable")
    return Matches(rows[order], scores[order], sum(part.total for part in parts))


def with_pattern(explored: StudyContext, text: str) -> Matches:
    """Memories that have a pattern with these letters in its description or kind."""
    wanted, best = text.casefold(), {}
    for address, patterns in pattern_results(explored.store.folder).by_address.items():
        covered = [
            pattern.covered
            for pattern in patterns
            if wanted in f"{pattern.description} {pattern.kind}".casefold()
        ]
        if covered:
            best[address] = max(covered)
    rows = [explored.store.cells.row(Address.parse(address)) for address in best]
    scores = np.array(list(best.values()), dtype=np.float64)
    return Matches.of(np.array(rows, dtype=np.int64), scores).by_score()


def statistic(explored: StudyContext, name: str) -> NDArray[Any]:
    """One number for every cell."""
    if name != "agreement":
        return explored.lookup.statistic(name)
    known = agreement_table(explored.store.folder, explored.store.cells.count)
    return np.zeros(explored.store.cells.count) if known is None else known.share


def hits(
    explored: StudyContext, rows: NDArray[np.int64], numbers: NDArray[Any], question: Question
) -> tuple[Hit, ...]:
    """The rows of a table."""
    lookup, by = explored.lookup, question.by
    known = agreement_table(explored.store.folder, explored.store.cells.count)
    promoted = lookup.top_texts(rows, TOKENS)
    columns = [lookup.statistic(name)[rows].tolist() for name in STATISTICS]
    agreeing = [None] * len(rows) if known is None else known.share[rows].tolist()
    scores = [None] * len(rows) if not SCORES[by] else numbers.tolist()
    kinds, weights = weight_fields(explored, rows, question.sort)
    return tuple(
        Hit(
            address=str(cell),
            score=score,
            promotes=tuple(texts),
            fires=fires,
            mean=mean,
            largest=largest,
            probability=probability,
            agreement=agreement,
            kind=kind,
            weight=weight,
        )
        for cell, texts, score, agreement, kind, weight, fires, mean, largest, probability in zip(
            explored.store.cells.addresses(rows),
            promoted,
            scores,
            agreeing,
            kinds,
            weights,
            *columns,
            strict=True,
        )
    )


def weight_fields(
    explored: StudyContext, rows: NDArray[np.int64], sort: str
) -> tuple[list[str | None], list[float | None]]:
    """The classes of some cells, and the column of the weights that they are sorted by."""
    nothing: list[Any] = [None] * len(rows)
    lookup = explored.lookup
    if not explored.store.folder.weights.exists():
        return nothing, nothing
    kinds = lookup.statistic("class")[rows].tolist()
    return kinds, lookup.statistic(sort)[rows].tolist() if sort in NUMBERS else nothing


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run text that begins so


def as_csv(rows: Sequence[Any]) -> str:
    """Dataclasses as CSV, a column a field; lists are joined by spaces."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end as the format wants, so that breaks in text are quoted
    for number, row in enumerate(rows):
        if not is_dataclass(row) or isinstance(row, type):
            raise TypeError(f"{row!r} is not a dataclass")
        fields = asdict(row)
        if number == 0:
            writer.writerow(fields)
        writer.writerow([cell(value) for value in fields.values()])
    return text.getvalue()


def cell(value: Any) -> Any:
    """One value; text that would be run as a formula gets an apostrophe in front."""
    if isinstance(value, list | tuple):
        value = " ".join(str(part) for part in value)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


@torch.no_grad()
def firing_on(model: LanguageModel, explored: StudyContext, phrase: str) -> Matches:
    """The cells that fire after the last token of a phrase, strongest first.

    The score is the coefficient as a share of the cell's largest in the scan, so that layers of
    different scale can be compared; a cell that the corpus never fired counts as 1.
    """
    token_ids(model, phrase)  # refuses one that is too long
    tokens = model.encode(phrase)
    at = torch.tensor([tokens.shape[1] - 1])
    readings = record(model, tokens, "m", at=at)
    parts = [
        cells(readings[number - 1].m[0].float().cpu(), explored.store.cells.signed)
        for number in explored.store.memories
    ]
    coefficients = torch.cat(parts).numpy()
    largest = np.asarray(explored.store.array("largest"))
    shares = coefficients / np.where(largest > 0, largest, np.maximum(coefficients, 1e-12))
    rows = np.flatnonzero(coefficients > 0)
    order = np.argsort(-shares[rows], kind="stable")
    return Matches.of(rows[order], shares[rows][order])


def cells(m: Tensor, signed: bool) -> Tensor:
    """A layer's coefficients as cells: in a gated layer the positive parts, then the negative."""
    return torch.cat([m.clamp(min=0), (-m).clamp(min=0)]) if signed else m
