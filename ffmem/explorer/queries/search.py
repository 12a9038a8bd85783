"""Memories by what they promote, by words of their triggers, by pattern, or by a statistic."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address, Sign
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.pattern_results import PatternView, pattern_results
from ffmem.explorer.queries.prompt import token_ids
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.store.lookup import STATISTICS, Matches
from ffmem.store.memory_page import Evidence, evidence
from ffmem.store.parquet_tables import End
from ffmem.store.search_index import words_in
from ffmem.store.slots import TRIGGERS_SHOWN, single_triggers
from ffmem.store.weight_columns import (
    NUMBERS,
    Condition,
    NumberColumn,
    agreement_table,
    parse_conditions,
)

By = Literal["promotes", "suppresses", "words", "meaning", "pattern", "phrase", "any", "dead"]
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
MOST_EXPLAINED = 500  # that come with their evidence
SCORES: dict[By, str] = {
    "promotes": "Rank",
    "suppresses": "Rank",
    "words": f"Triggers of {TRIGGERS_SHOWN}",
    "meaning": "Nearness",
    "pattern": "Covered",
    "phrase": "Of its largest",
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
    sign: Sign = ""
    fires_from: float | None = None  # percent of prefixes
    fires_to: float | None = None
    agrees: float | None = None  # percent of triggers, at least
    kind: str = ""  # class of the weights

    @property
    def is_empty(self) -> bool:
        """Whether a text is needed and not given."""
        return self.by not in ("any", "dead") and not self.text

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
    logit: float | None = None  # of the token that was looked for
    pattern: str | None = None  # what was looked for is in it
    evidence: Evidence | None = None  # the trigger that shows why it was found


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
    table = hits(explored, found.rows[shown], found.scores[shown], question)
    if count <= MOST_EXPLAINED:
        table = with_evidence(explored, table, found.rows[shown], question)
    return Answer(
        question=question,
        score=SCORES[question.by],
        total=found.total,
        looked_at=found.looked_at,
        first=first,
        hits=table,
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
    if conditions := question.conditions:
        here = explored.lookup.where(conditions)[rows]
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
    conditions = question.conditions
    if question.layer is None and question.sort in STATISTICS and not conditions:
        order = lookup.order(question.sort)
        order, total = (order[::-1] if question.reverse else order), len(order)
    else:
        cells = explored.store.cells
        every = slice(0, cells.count)
        inside = every if question.layer is None else cells.rows_of(question.layer)
        rows = np.arange(inside.start, inside.stop)
        if conditions:
            rows = rows[lookup.where(conditions)[rows]]
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
    if question.is_empty:
        return Matches.nothing()
    match question.by:
        case "promotes" | "suppresses":
            end: End = "promoted" if question.by == "promotes" else "suppressed"
            tokens = lookup.token_ids(question.text)
            return join_matches([lookup.promoters(token, end) for token in tokens])
        case "words":
            return lookup.with_words(question.text)
        case "meaning":
            return with_meaning(explored, question.text)
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

    def score(pattern: PatternView) -> float:
        return pattern.covered if has_letters(pattern, text) else 0.0

    return best_patterns(explored, score)


def has_letters(pattern: PatternView, text: str) -> bool:
    """Whether a pattern's description or kind has these letters."""
    return text.casefold() in f"{pattern.description} {pattern.kind}".casefold()


def best_patterns(explored: StudyContext, score: Callable[[PatternView], float]) -> Matches:
    """Memories by the best score of their patterns, without those that have nothing above 0."""
    every = pattern_results(explored.store.folder).by_address.items()
    best = {address: max(map(score, patterns), default=0.0) for address, patterns in every}
    some = {address: number for address, number in best.items() if number > 0}
    rows = [explored.store.cells.row(Address.parse(address)) for address in some]
    scores = np.array(list(some.values()), dtype=np.float64)
    return Matches.of(np.array(rows, dtype=np.int64), scores).by_score()


def with_meaning(explored: StudyContext, phrase: str) -> Matches:
    """Memories whose triggers, or patterns, hold the words of a phrase or related ones."""
    weights, asked = explored.related.weights(phrase)

    def score(pattern: PatternView) -> float:
        total = sum(weights.get(word, 0.0) for word in words_in(pattern.description))
        return pattern.covered * min(total / max(asked, 1), 1.0)

    triggers = explored.lookup.with_weights(weights, max(asked, 1))
    patterns = best_patterns(explored, score)
    if not patterns.total:
        return triggers
    rows = np.concatenate([triggers.rows, patterns.rows])
    order = np.argsort(-np.concatenate([triggers.scores, patterns.scores]), kind="stable")
    _, first = np.unique(rows[order], return_index=True)  # of each the better score
    best = order[np.sort(first)]
    scores = np.concatenate([triggers.scores, patterns.scores])[best]
    return Matches.of(rows[best], scores, triggers.looked_at)


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


def with_evidence(
    explored: StudyContext, found: tuple[Hit, ...], rows: NDArray[np.int64], question: Question
) -> tuple[Hit, ...]:
    """The same rows with the trigger, the pattern or the logit that each was found by."""
    cells = explored.store.cells.addresses(rows)
    weights = looked_for(explored, question)
    patterns = [shown_pattern(explored, hit.address, question, weights) for hit in found]
    if weights and len(rows):
        ranks = explored.lookup.best_triggers(rows, weights)
    else:
        ranks = [0 if pattern is None else pattern.ranks[0] - 1 for pattern in patterns]
    triggers = single_triggers(explored.store, rows, ranks) if len(rows) else []
    return tuple(
        replace(
            hit,
            logit=token_logit(explored, cell, hit, question),
            pattern=None if pattern is None else pattern.description,
            evidence=None if trigger is None else evidence(trigger, rank + 1, weights),
        )
        for hit, cell, rank, pattern, trigger in zip(
            found, cells, ranks, patterns, triggers, strict=True
        )
    )


def looked_for(explored: StudyContext, question: Question) -> dict[str, float]:
    """The words that triggers are searched for, with their weights; none for other questions."""
    if question.by == "words":
        return dict.fromkeys(words_in(question.text), 1.0)
    return explored.related.weights(question.text)[0] if question.by == "meaning" else {}


def shown_pattern(
    explored: StudyContext, address: str, question: Question, weights: Mapping[str, float]
) -> PatternView | None:
    """The pattern that fits a question best, where patterns are searched."""
    if question.by not in ("pattern", "meaning"):
        return None
    known = pattern_results(explored.store.folder).of(address)
    fits = [
        pattern
        for pattern in known
        if (question.by == "pattern" and has_letters(pattern, question.text))
        or any(word in weights for word in words_in(pattern.description))
    ]
    return max(fits, key=lambda pattern: pattern.covered, default=None)


def token_logit(
    explored: StudyContext, cell: Address, hit: Hit, question: Question
) -> float | None:
    """What a coefficient of 1 adds to the logit of the token that was looked for."""
    if question.by not in ("promotes", "suppresses") or hit.score is None:
        return None
    end: End = "promoted" if question.by == "promotes" else "suppressed"
    return explored.lookup.value_tokens(cell, end)[int(hit.score)].logit


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


NOT_IN_TABLES = ("logit", "pattern", "evidence")  # are there for a page of hits, not for thousands
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run text that begins so


def as_csv(rows: Sequence[Any]) -> str:
    """Dataclasses as CSV, a column a field; lists are joined by spaces."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end as the format wants, so that breaks in text are quoted
    for number, row in enumerate(rows):
        if not is_dataclass(row) or isinstance(row, type):
            raise TypeError(f"{row!r} is not a dataclass")
        fields = {name: value for name, value in asdict(row).items() if name not in NOT_IN_TABLES}
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
