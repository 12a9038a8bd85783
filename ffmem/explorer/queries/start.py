"""Where to start in a study: a few memories of each kind, and prompts with an edit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.analyses.patterns.record import Pattern
from ffmem.explorer.context import StudyContext
from ffmem.store.memory_page import Evidence, evidence
from ffmem.store.search.columns import AgreementTable, agreement_table
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger

POINTERS = 4  # memories of a card
EXAMPLES = 3  # prompts to begin with
ENOUGH_TRIGGERS = 10  # for a value to be called right or wrong
AGREES = 0.2  # share of triggers from which on a sure value is an agreeing one
DEPTHS = ("Lower", "Middle", "Upper")


@dataclass(frozen=True)
class Pointer:
    """A memory worth a look, what is to be seen of it, and one of its triggers."""

    address: str
    says: str
    tokens: tuple[str, ...]  # that its value promotes
    evidence: Evidence | None


@dataclass(frozen=True)
class StartCard:
    """A few memories of one kind, and the search that finds more."""

    title: str
    says: str
    pointers: tuple[Pointer, ...]
    more: str  # query of the search page; empty where there is none


@dataclass(frozen=True)
class PromptExample:
    """A text to begin with, and a change that is worth a try there."""

    text: str
    edit: str


def start_cards(context: StudyContext) -> Iterator[StartCard]:
    """The cards that this study's results can fill, what was measured on the model first.

    A scan without results has the cards of what it counted.
    """
    known = known_agreement(context)
    if "causal" in context.study.names:
        yield _causal_card(context)
    if known is not None:
        yield agreeing_card(context, known)
    yield _pattern_card(context)
    if known is not None:
        yield disagreeing_card(context, known)
    else:
        yield from _scan_cards(context)


def _scan_cards(context: StudyContext) -> Iterator[StartCard]:
    """Confident values, the most specific keys, and the densest ones."""
    index = context.lookup
    fires, mean, largest = (index.statistic(name) for name in ("fires", "mean", "largest"))
    enough = fires >= TRIGGERS_SHOWN
    if context.store.has_rankings:
        sure = 100 * index.statistic("probability")
        yield _counted_card(
            context,
            ("Confident values", "Values that by themselves give one token the most probability."),
            (enough, sure),
            lambda row: f"gives its first token {sure[row]:.3g} %",
            "by=any&sort=probability",
        )
    peak = largest / np.maximum(mean, 1e-30)
    yield _counted_card(
        context,
        (
            "Specific keys",
            "Keys whose strongest triggers stand out most from all else that fires them.",
        ),
        (enough, peak),
        lambda row: f"its strongest trigger is {peak[row]:.0f} times its mean coefficient",
        "",
    )
    prefixes = max(context.store.manifest.counts["prefixes"], 1)
    yield _counted_card(
        context,
        ("Dense keys", "Keys that fire on most of the text: look at their weaker examples, too."),
        (enough, fires),
        lambda row: f"fires on {100 * fires[row] / prefixes:.0f} % of the prefixes",
        "by=any&sort=fires",
    )


def _counted_card(
    context: StudyContext,
    words: tuple[str, str],
    chosen: tuple[NDArray[np.bool_], NDArray[Any]],
    says: Callable[[int], str],
    more: str,
) -> StartCard:
    """Memories that have most of something the scan counted, each after another token."""
    fits, score = chosen
    rows = np.flatnonzero(fits)
    pointers: dict[str, Pointer] = {}
    for row in rows[np.argsort(-score[rows], kind="stable")][: 16 * POINTERS].tolist():
        cell = context.store.cells.address(row)
        (first,) = context.store.triggers(cell)[:1]
        if len(pointers) < POINTERS and first.last not in pointers:
            pointers[first.last] = point(context, cell, says(row), [(0, first)])
    return StartCard(*words, tuple(pointers.values()), more)


def known_agreement(context: StudyContext) -> AgreementTable | None:
    """How often values are right, where that was measured and the scan knows their tokens."""
    store = context.store
    return agreement_table(store.folder, store.cells.count) if store.has_rankings else None


@lru_cache(maxsize=2)
def agreeing_card(context: StudyContext, known: AgreementTable) -> StartCard:
    """The values that are most often right about what follows their triggers."""
    pointers = []
    for row in agreeing_rows(context, known):
        cell = context.store.cells.address(row)
        triggers = context.store.triggers(cell)[:TRIGGERS_SHOWN]
        says = f"its first token follows {known.agreeing[row]} of {known.triggers[row]} triggers"
        shown = agreeing_triggers(context, cell) or list(enumerate(triggers))
        pointers.append(point(context, cell, says, shown))
    return StartCard(
        "Values that agree with the text",
        "The first token that the value promotes is what most often follows the triggers.",
        tuple(pointers),
        f"by=any&sort=agreement&agrees={100 * AGREES:g}",
    )


def agreeing_rows(context: StudyContext, known: AgreementTable) -> list[int]:
    """The cells whose values are right most often; of those that are so equally, the surest."""
    fits = (known.triggers >= ENOUGH_TRIGGERS) & (known.share >= AGREES)
    return best_cells(context, fits, known.share)


def agreeing_triggers(context: StudyContext, cell: Address) -> list[tuple[int, Trigger]]:
    """Of the triggers that pages show those that the value's first token follows, ranks from 0."""
    first = context.lookup.value_tokens(cell, count=1)[0].text
    triggers = enumerate(context.store.triggers(cell)[:TRIGGERS_SHOWN])
    return [(rank, one) for rank, one in triggers if one.next == first]


@lru_cache(maxsize=2)
def disagreeing_card(context: StudyContext, known: AgreementTable) -> StartCard:
    """The most certain of the values that are never right."""
    fits = (known.triggers >= ENOUGH_TRIGGERS) & (known.agreeing == 0)
    pointers = []
    for row in best_cells(context, fits):
        cell = context.store.cells.address(row)
        triggers = list(enumerate(context.store.triggers(cell)[:1]))
        says = f"its first token follows none of {known.triggers[row]} triggers"
        pointers.append(point(context, cell, says, triggers))
    return StartCard(
        "Values that disagree with the text",
        "The values that give their first token the highest probability, though it never follows "
        "a trigger.",
        tuple(pointers),
        "by=any&sort=probability&where=agreement<=0",
    )


@lru_cache(maxsize=2)
def prompt_examples(context: StudyContext) -> tuple[PromptExample, ...]:
    """Triggers with their memory silenced: short ones that the value's first token follows.

    Before agreement was measured, those of the memories that fire strongest for their layer.
    """
    known = known_agreement(context)
    right_ones = [] if known is None else agreeing_rows(context, known)
    agreeing = []
    for cell in map(context.store.cells.address, right_ones):
        right = [one.prefix for _, one in agreeing_triggers(context, cell)]
        agreeing += [PromptExample(min(right, key=len), f"{cell}=0")] if right else []
    if agreeing:
        return tuple(agreeing[:EXAMPLES])
    cells, largest = context.store.cells, context.lookup.statistic("largest")
    layers = list(context.store.memories)
    found = {}
    for layer in layers[len(layers) // 2 :: max(len(layers) // (2 * EXAMPLES), 1)]:
        rows = cells.rows_of(layer)
        cell = cells.address(rows.start + int(largest[rows].argmax()))
        for trigger in context.store.triggers(cell)[:1]:
            found[trigger.prefix] = f"{cell}=0"
    return tuple(PromptExample(text, edit) for text, edit in list(found.items())[:EXAMPLES])


def best_cells(
    context: StudyContext, fits: NDArray[np.bool_], score: NDArray[Any] | None = None
) -> list[int]:
    """Some cells by score, then by top probability, each with another first token.

    Tokens without a letter or digit come last: few people know what a lone byte says.
    """
    rows = np.flatnonzero(fits)
    surest = -context.lookup.statistic("probability")[rows]
    order = (
        np.argsort(surest, kind="stable") if score is None else np.lexsort((surest, -score[rows]))
    )
    first = rows[order][: 16 * POINTERS]
    tokens = context.lookup.top_texts(first, 1)
    distinct: dict[str, int] = {}
    for row, words in zip(first.tolist(), tokens, strict=True):
        distinct.setdefault(words[0].strip().casefold(), row)
    words_first = sorted(distinct, key=lambda word: not any(map(str.isalnum, word)))
    return [distinct[word] for word in words_first[:POINTERS]]


def _pattern_card(context: StudyContext) -> StartCard:
    """From the lower, middle and upper layers the pattern that covers most triggers."""
    layers = list(context.store.memories)
    best: dict[int, tuple[Address, Pattern]] = {}
    for text, patterns in study_patterns(context.store.folder).by_address.items():
        cell = Address.parse(text)
        if not patterns or cell.layer not in context.store.memories:
            continue
        depth = layers.index(cell.layer) * len(DEPTHS) // len(layers)
        if depth not in best or len(patterns[0].ranks) > len(best[depth][1].ranks):
            best[depth] = (cell, patterns[0])
    pointers = []
    for depth, (cell, pattern) in sorted(best.items()):
        rank = pattern.ranks[0] - 1
        triggers = list(enumerate(context.store.triggers(cell)[: rank + 1]))[rank:]
        share = f"{len(pattern.ranks)} of {TRIGGERS_SHOWN} triggers"
        says = f"{DEPTHS[depth]} layers, {pattern.kind}: {pattern.text} ({share})"
        pointers.append(point(context, cell, says, triggers))
    return StartCard(
        "Clear patterns by depth",
        "What the triggers of a memory share, from each third of the layers.",
        tuple(pointers),
        urlencode({"by": "pattern", "q": best[max(best)][1].kind}) if best else "",
    )


def _causal_card(context: StudyContext) -> StartCard:
    """The silenced memories that move the next token furthest beyond their controls."""
    every = [one for layer in context.study.result("causal").layers for one in layer.by_memory]
    best = sorted(every, key=lambda one: one.other_kl - one.kl)[:POINTERS]
    return StartCard(
        "What the model uses most",
        "Of the memories that were silenced at their triggers those that change the next token "
        "most, beside a control: silencing another memory that adds as much there.",
        tuple(
            point(
                context,
                one.address,
                f"silenced, it moves the next token by {one.kl:.3f} nats; its control "
                f"{one.other_kl:.3f}",
                list(enumerate(context.store.triggers(one.address)[:1])),
            )
            for one in best
            if one.kl > one.other_kl
        ),
        "",
    )


def point(
    context: StudyContext, cell: Address, says: str, triggers: Sequence[tuple[int, Trigger]]
) -> Pointer:
    """A memory with the first of some of its triggers (ranks from 0)."""
    row: NDArray[Any] = np.array([context.store.cells.row(cell)])
    shown = evidence(triggers[0][1], triggers[0][0] + 1) if triggers else None
    return Pointer(str(cell), says, tuple(context.lookup.top_texts(row, 3)[0]), shown)
