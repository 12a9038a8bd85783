"""Memories by what they promote, by words of their triggers, by pattern, or by a statistic."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address, Sign
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.pattern_results import PatternView, StudyPatterns, pattern_results
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
    AgreementTable,
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
MOST_HITS = 2_000  # memories of one answer that can be paged through
MOST_SAVED = 10_000  # or downloaded
MOST_EXPLAINED = 500  # that come with their evidence
SCORES: dict[By, str] = {
    "promotes": "Rank",
    "suppresses": "Rank",
    "words": f"Triggers of {TRIGGERS_SHOWN}",
    "meaning": "Nearness",
    "pattern": "Triggers covered",
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
    def is_plain(self) -> bool:
        """Whether everything that fits is wanted, best first."""
        best_first = self.sort == "score" and not self.reverse
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


@dataclass  # not frozen: a page has dozens, and a frozen one takes four times as long to make
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
class SearchAnswer:
    """A page of hits, and how many there are in all."""

    question: Question
    score: str  # what the score is
    total: int
    looked_at: float  # share of the triggers that were counted, 1 unless they are too many
    first: int  # number of the first hit on this page, from 0
    hits: tuple[Hit, ...]


@dataclass(frozen=True)
class Results:
    """The results of analyses that a search reads; replaced when they have run again."""

    patterns: StudyPatterns
    agreement: AgreementTable | None
    has_weights: bool


def results_of(context: StudyContext) -> Results:
    """The results as they are now."""
    folder, cells = context.store.folder, context.store.cells.count
    agreement = agreement_table(folder, cells)
    return Results(pattern_results(folder), agreement, folder.weights.exists())


def answer(
    context: StudyContext,
    question: Question,
    first: int,
    count: int,
    firing: Matches | None = None,
) -> SearchAnswer:
    """One page of what is found; `firing` is what the model said of a meaning."""
    most = MOST_HITS if first + count <= MOST_HITS else MOST_SAVED
    found = (
        order_matches(context, question, most, results_of(context))
        if firing is None
        else in_order(context, question, most, firing)
    )
    shown = slice(first, first + count)
    rows, scores = found.rows[shown], found.scores[shown]
    return SearchAnswer(
        question=question,
        score=SCORES[question.by],
        total=found.total,
        looked_at=found.looked_at,
        first=first,
        hits=hits(context, rows, scores, question, explained=count <= MOST_EXPLAINED),
    )


@lru_cache(maxsize=256)
def order_matches(
    context: StudyContext, question: Question, most: int, _results: Results
) -> Matches:
    """The first memories, `most` of them, in the order asked for."""
    if question.by == "any":
        return any_memories(context, question, most)
    first = most if question.is_plain else None
    return in_order(context, question, most, candidates(context, question, first))


def in_order(context: StudyContext, question: Question, most: int, found: Matches) -> Matches:
    """The first of what was found, best first until now, in the order asked for."""
    rows, scores, total = found.rows, found.scores, found.total
    if conditions := question.conditions:
        here = context.lookup.where(conditions)[rows]
        rows, scores = rows[here], scores[here]
        total = len(rows)
    if question.layer is not None:
        inside = context.store.cells.rows_of(question.layer)
        here = (rows >= inside.start) & (rows < inside.stop)
        rows, scores = rows[here], scores[here]
        total = len(rows)
    if question.sort != "score" or question.reverse:
        first = first_places(context, rows, question, most)
        rows, scores = rows[first], scores[first]
    return Matches(rows[:most].astype(np.int64), scores[:most].copy(), total, found.looked_at)


def any_memories(context: StudyContext, question: Question, most: int) -> Matches:
    """All memories, or all of a layer, in the order asked for."""
    lookup = context.lookup
    order: NDArray[Any]
    conditions = question.conditions
    if question.layer is None and question.sort in STATISTICS and not conditions:
        order = lookup.order(question.sort)
        order, total = (order[::-1] if question.reverse else order), len(order)
    else:
        cells = context.store.cells
        every = slice(0, cells.count)
        inside = every if question.layer is None else cells.rows_of(question.layer)
        rows = np.arange(inside.start, inside.stop)
        if conditions:
            rows = rows[lookup.where(conditions)[rows]]
        order, total = rows[first_places(context, rows, question, most)], len(rows)
    return Matches(order[:most].astype(np.int64), np.zeros(min(total, most)), total)


def first_places(
    context: StudyContext, rows: NDArray[Any], question: Question, most: int
) -> NDArray[np.intp]:
    """Places of the first of `rows` in the order asked for; the rest is left unsorted."""
    if question.sort == "score":
        every = np.arange(len(rows))
        return (every[::-1] if question.reverse else every)[:most]
    natural = -rows if question.sort == "address" else statistic(context, question.sort)[rows]
    numbers = natural if question.reverse else -natural
    few = np.argpartition(numbers, most)[:most] if len(rows) > 2 * most else np.arange(len(rows))
    return few[np.lexsort((rows[few], numbers[few]))]


def candidates(context: StudyContext, question: Question, first: int | None) -> Matches:
    """The memories that fit, best first, before layer and order are looked at.

    `first` is how many of them are wanted; None wants all.
    """
    lookup = context.lookup
    if question.is_empty:
        return Matches.nothing()
    match question.by:
        case "promotes" | "suppresses":
            end: End = "promoted" if question.by == "promotes" else "suppressed"
            tokens = lookup.token_ids(question.text)
            return join_matches([lookup.promoters(token, end) for token in tokens])
        case "words":
            return lookup.with_words(question.text, first)
        case "meaning":
            return with_meaning(context, question.text, first)
        case "pattern":
            return with_pattern(context, question.text)
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


def with_pattern(context: StudyContext, text: str) -> Matches:
    """Memories that have a pattern with these letters in its description or kind."""

    def score(pattern: PatternView) -> float:
        return pattern.covered if has_letters(pattern, text) else 0.0

    return best_patterns(context, score)


def has_letters(pattern: PatternView, text: str) -> bool:
    """Whether a pattern's description or kind has these letters."""
    return text.casefold() in f"{pattern.description} {pattern.kind}".casefold()


def best_patterns(context: StudyContext, score: Callable[[PatternView], float]) -> Matches:
    """Memories by the best score of their patterns, without those that have nothing above 0."""
    every = pattern_results(context.store.folder).by_address.items()
    best = {address: max(map(score, patterns), default=0.0) for address, patterns in every}
    some = {address: number for address, number in best.items() if number > 0}
    rows = [context.store.cells.row(Address.parse(address)) for address in some]
    scores = np.array(list(some.values()), dtype=np.float64)
    return Matches.of(np.array(rows, dtype=np.int64), scores).by_score()


def with_meaning(context: StudyContext, phrase: str, first: int | None) -> Matches:
    """Memories whose triggers, or patterns, hold the words of a phrase or related ones."""
    weights, asked = context.related.weights(phrase)

    def score(pattern: PatternView) -> float:
        total = sum(weights.get(word, 0.0) for word in words_in(pattern.description))
        return pattern.covered * min(total / max(asked, 1), 1.0)

    patterns = best_patterns(context, score)
    if not patterns.total:
        return context.lookup.with_weights(weights, max(asked, 1), first)
    triggers = context.lookup.with_weights(weights, max(asked, 1))
    rows = np.concatenate([triggers.rows, patterns.rows])
    order = np.argsort(-np.concatenate([triggers.scores, patterns.scores]), kind="stable")
    _, places = np.unique(rows[order], return_index=True)  # of each the better score
    best = order[np.sort(places)]
    scores = np.concatenate([triggers.scores, patterns.scores])[best]
    return Matches.of(rows[best], scores, triggers.looked_at)


def statistic(context: StudyContext, name: str) -> NDArray[Any]:
    """One number for every cell."""
    if name != "agreement":
        return context.lookup.statistic(name)
    known = agreement_table(context.store.folder, context.store.cells.count)
    return np.zeros(context.store.cells.count) if known is None else known.share


def hits(
    context: StudyContext,
    rows: NDArray[np.int64],
    numbers: NDArray[Any],
    question: Question,
    explained: bool = True,
) -> tuple[Hit, ...]:
    """The rows of a table, with what each was found by where that is to be `explained`."""
    if not len(rows):
        return ()
    lookup, nothing = context.lookup, [None] * len(rows)
    known = agreement_table(context.store.folder, context.store.cells.count)
    names = list(map(str, context.store.cells.addresses(rows)))
    columns = (  # in the order of a hit's fields
        names,
        numbers.tolist() if SCORES[question.by] else nothing,
        map(tuple, lookup.top_texts(rows, TOKENS)),
        *(lookup.statistic(name)[rows].tolist() for name in STATISTICS),
        nothing if known is None else known.share[rows].tolist(),
        *weight_fields(context, rows, question.sort),
        *(reasons(context, names, rows, numbers, question) if explained else [nothing] * 3),
    )
    return tuple(Hit(*fields) for fields in zip(*columns, strict=True))


def reasons(
    context: StudyContext,
    names: Sequence[str],
    rows: NDArray[np.int64],
    numbers: NDArray[Any],
    question: Question,
) -> tuple[Sequence[float | None], list[str | None], list[Evidence | None]]:
    """Of each cell the logit, the pattern and the trigger that it was found by."""
    weights = search_words(context, question)
    patterns = pattern_per_memory(context, names, question, weights)
    if weights:
        ranks = context.lookup.best_triggers(rows, weights)
    else:
        ranks = [0 if pattern is None else pattern.ranks[0] - 1 for pattern in patterns]
    triggers = single_triggers(context.store, rows, ranks)
    return (
        token_logits(context, rows, numbers, question),
        [None if pattern is None else pattern.description for pattern in patterns],
        [
            None if trigger is None else evidence(trigger, rank + 1, weights)
            for trigger, rank in zip(triggers, ranks, strict=True)
        ],
    )


def search_words(context: StudyContext, question: Question) -> dict[str, float]:
    """The words that triggers are searched for, with their weights; none for other questions."""
    if question.by == "words":
        return dict.fromkeys(words_in(question.text), 1.0)
    return context.related.weights(question.text)[0] if question.by == "meaning" else {}


def pattern_per_memory(
    context: StudyContext, names: Sequence[str], question: Question, weights: Mapping[str, float]
) -> list[PatternView | None]:
    """Of each memory the pattern that fits a question best, where patterns are searched."""
    if question.by not in ("pattern", "meaning"):
        return [None] * len(names)
    known = pattern_results(context.store.folder)

    def fits(pattern: PatternView) -> bool:
        if question.by == "pattern" and has_letters(pattern, question.text):
            return True
        return any(word in weights for word in words_in(pattern.description))

    return [
        max(filter(fits, known.of(name)), key=lambda one: one.covered, default=None)
        for name in names
    ]


def token_logits(
    context: StudyContext, rows: NDArray[np.int64], ranks: NDArray[Any], question: Question
) -> Sequence[float | None]:
    """The logit that a coefficient of 1 adds to the searched token."""
    if question.by not in ("promotes", "suppresses"):
        return [None] * len(rows)
    end: End = "promoted" if question.by == "promotes" else "suppressed"
    return context.lookup.logits_at(rows, ranks.astype(np.int64), end)


def weight_fields(
    context: StudyContext, rows: NDArray[np.int64], sort: str
) -> tuple[list[str | None], list[float | None]]:
    """The classes of some cells, and the column of the weights that they are sorted by."""
    nothing: list[Any] = [None] * len(rows)
    lookup = context.lookup
    if not context.store.folder.weights.exists():
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
def firing_on(model: LanguageModel, context: StudyContext, phrase: str) -> Matches:
    """The cells that fire after the last token of a phrase, strongest first.

    The score is the coefficient as a share of the cell's largest in the scan, so that layers of
    different scale can be compared; a cell that the corpus never fired counts as 1.
    """
    token_ids(model, phrase)  # refuses one that is too long
    tokens = model.encode(phrase)
    at = torch.tensor([tokens.shape[1] - 1])
    readings = record(model, tokens, "m", at=at)
    parts = [
        cells(readings[number - 1].m[0].float().cpu(), context.store.cells.signed)
        for number in context.store.memories
    ]
    coefficients = torch.cat(parts).numpy()
    largest = np.asarray(context.store.array("largest"))
    shares = coefficients / np.where(largest > 0, largest, np.maximum(coefficients, 1e-12))
    rows = np.flatnonzero(coefficients > 0)
    order = np.argsort(-shares[rows], kind="stable")
    return Matches.of(rows[order], shares[rows][order])


def cells(m: Tensor, signed: bool) -> Tensor:
    """A layer's coefficients as cells: in a gated layer the positive parts, then the negative."""
    return torch.cat([m.clamp(min=0), (-m).clamp(min=0)]) if signed else m
