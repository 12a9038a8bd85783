"""The examples of a report: the finding in three sentences, memories, tables.

It opens with one memory and one small figure; Tables 1, 2 and 3 of the paper are made from the
model's best memories.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from ffmem.address import Address
from ffmem.analyses.patterns.prefixes import first_prefixes
from ffmem.analyses.patterns.record import Pattern, PatternResults
from ffmem.analyses.study import Study
from ffmem.analyses.values.record import ValueRow, Values
from ffmem.analyses.verdicts import Verdict
from ffmem.store.memory_page import MemoryPage
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger
from ffmem.text import Snippet

BANDS = 6  # parts of the depth that each give a row of Table 1
TRIGGERS_PER_KEY = 3  # shown of each key
VALUES = 12  # rows of Table 2
BEFORE = 70  # characters of a prefix that are shown
FIGURES = (  # the first of them that a study has stands on the first two pages
    "values-agreement",
    "patterns",
    "refinement-winners",
    "composition-zero-agreement",
)
CLAIM_SENTENCES = {  # by the claim whose numbers they say; they judge nothing
    "every-key-has-a-pattern": "Keys detect patterns: {number} of the keys that were drawn have a "
    "pattern that repeats in their triggers",
    "upper-values-agree": "Values promote tokens: {number} of the values in the upper layers put "
    "first the very token that follows their key's strongest trigger",
    "a-third-is-settled-early": "Layers refine: {number} of the predictions are on top of the "
    "residual at 5/16 of the depth",
}
MEMORY_LINES = 6  # triggers and tokens of the memory


@dataclass(frozen=True)
class CountedTrigger:
    """A trigger, and how many of the triggers are the same prefix."""

    trigger: Snippet
    times: int


@dataclass(frozen=True)
class KeyRow:
    """One row of Table 1: a key's clearest pattern, and that of the other kind if it has one."""

    key: Address
    patterns: tuple[Pattern, ...]
    by_rule: str | None  # the rule's clearest pattern, where the first is a reader's
    triggers: tuple[CountedTrigger, ...]


def key_rows(study: PatternResults, store: ScanStore) -> tuple[KeyRow, ...]:
    """From each part of the depth the key with the clearest pattern.

    By the reader where keys were read blind, and the rule's clearest pattern of the key beside it.
    """
    layers = sorted(store.memories)
    by_key = _patterns_of_drawn_keys(study)
    whole = {key: whole_words(store, key) for key in by_key}
    clear = {key: _clearest(patterns, whole[key]) for key, patterns in by_key.items()}
    rule, rows = _by_key(study.records), []
    for band in range(BANDS):
        inside = [key for key in clear if layers.index(key.layer) * BANDS // len(layers) == band]
        if inside:
            best = max(
                sorted(inside, key=lambda key: (key.index, key)),
                key=lambda key: _clearness(whole[key], clear[key][0]),
            )
            widest = next((one.description for one in rule.get(best, ())), "none")
            by_rule = None if study.readings is None else widest
            rows.append(_key_row(best, clear[best], by_rule, store))
    return tuple(rows)


def whole_words(store: ScanStore, key: Address) -> frozenset[int]:
    """The ranks of the triggers whose last token is a whole word."""
    prefixes = enumerate(first_prefixes(store, key), 1)
    return frozenset(
        rank for rank, prefix in prefixes if not (prefix.continues or prefix.unfinished)
    )


def _clearness(whole: Collection[int], pattern: Pattern) -> tuple[int, int]:
    """Triggers that a pattern covers: first those that end in a whole word, then all."""
    return len(set(pattern.ranks) & set(whole)), len(pattern.ranks)


def _clearest(patterns: Sequence[Pattern], whole: Collection[int]) -> tuple[Pattern, ...]:
    """A key's clearest pattern, and the clearest of the other kind if it has one."""
    first, *others = sorted(patterns, key=partial(_clearness, whole), reverse=True)
    return (first, *[one for one in others if one.kind != first.kind][:1])


def _patterns_of_drawn_keys(study: PatternResults) -> dict[Address, list[Pattern]]:
    """Those of the keys that the study drew, by the reader where they were read blind."""
    if study.readings is None:
        return _by_key(study.records)
    drawn = {name for names in study.drawn.values() for name in names}
    return _by_key([one for one in study.readings.records if str(one.key) in drawn])


def _by_key(patterns: Sequence[Pattern]) -> dict[Address, list[Pattern]]:
    """Each key's patterns, the one of most triggers first."""
    found: dict[Address, list[Pattern]] = {}
    for pattern in sorted(patterns, key=lambda pattern: -len(pattern.ranks)):
        if pattern.key is not None:
            found.setdefault(pattern.key, []).append(pattern)
    return found


def _key_row(
    key: Address, patterns: tuple[Pattern, ...], by_rule: str | None, store: ScanStore
) -> KeyRow:
    """The triggers shown are those that have both patterns, then others of the first."""
    triggers = store.triggers(key)
    times = Counter(one.prefix for one in triggers[:TRIGGERS_SHOWN])
    ranks = sorted(
        patterns[0].ranks, key=lambda rank: (-sum(rank in one.ranks for one in patterns), rank)
    )
    shown: dict[str, Trigger] = {}
    for rank in ranks:
        shown.setdefault(triggers[rank - 1].prefix, triggers[rank - 1])
    return KeyRow(
        key=key,
        patterns=patterns,
        by_rule=by_rule,
        triggers=tuple(
            CountedTrigger(Snippet.of(one, BEFORE), times[text])
            for text, one in list(shown.items())[:TRIGGERS_PER_KEY]
        ),
    )


@dataclass(frozen=True)
class AnnotatedTrigger:
    """A trigger with the numbers of the patterns that cover it, from 1; equal ones are one."""

    trigger: Snippet
    times: int
    patterns: tuple[int, ...]


@dataclass(frozen=True)
class AnnotatedKey:
    """Table 3: one key with its patterns in order and every trigger that the annotator saw."""

    key: Address
    patterns: tuple[Pattern, ...]
    triggers: tuple[AnnotatedTrigger, ...]


def annotated_key(study: PatternResults, store: ScanStore) -> AnnotatedKey | None:
    """The drawn key with patterns of both kinds, if any has, whose clearest cover most triggers.

    Triggers that end in a whole word count first. By the reader where keys were read blind.
    """
    by_key = _patterns_of_drawn_keys(study)

    def merit(key: Address) -> tuple[int, int, int]:
        whole = whole_words(store, key)
        clear = _clearest(by_key[key], whole)
        covered = {rank for pattern in clear for rank in pattern.ranks}
        return len(clear), len(covered & whole), len(covered)

    best = max(sorted(by_key), key=merit, default=None)
    if best is None:
        return None
    patterns = tuple(by_key[best])
    ranks: dict[str, list[int]] = {}
    triggers = store.triggers(best)[:TRIGGERS_SHOWN]
    for rank, one in enumerate(triggers, 1):
        ranks.setdefault(one.prefix, []).append(rank)
    return AnnotatedKey(
        best,
        patterns,
        tuple(
            AnnotatedTrigger(
                Snippet.of(triggers[same[0] - 1], BEFORE),
                len(same),
                tuple(n for n, one in enumerate(patterns, 1) if set(same) & set(one.ranks)),
            )
            for same in ranks.values()
        ),
    )


def value_rows(result: Values) -> tuple[ValueRow, ...]:
    """The values of highest probability with an agreeing trigger, most precise first."""
    agreeing = [row for row in result.predictive.rows if row.before]
    best = sorted(agreeing, key=lambda row: (-row.precision, -row.probability))[:VALUES]
    return tuple(best)


@dataclass(frozen=True)
class Sentence:
    """One finding in words: `{number}` stands for that of the verdict."""

    text: str
    verdict: Verdict


@dataclass(frozen=True)
class Push:
    """A token that the value promotes, and its logit as a share of the largest one."""

    token: str
    share: float


@dataclass(frozen=True)
class MemoryExample:
    """One memory as it is drawn: what fires its key, and what its value promotes."""

    address: Address
    frequency: str
    triggers: tuple[Snippet, ...]
    promoted: tuple[Push, ...]


def sentences(verdicts: Sequence[Verdict]) -> tuple[Sentence, ...]:
    """The finding; claims that were not measured have no sentence."""
    by_name = {
        verdict.name: verdict
        for verdict in verdicts
        if verdict.finding is not None and not math.isnan(verdict.finding.number.estimate)
    }
    return tuple(
        Sentence(text, by_name[name]) for name, text in CLAIM_SENTENCES.items() if name in by_name
    )


def example_memory(
    study: Study, values: Sequence[ValueRow], keys: Sequence[KeyRow]
) -> MemoryExample | None:
    """The value of Table 2 that promotes a word, or any, or a key of Table 1, or none."""
    words = [
        row.address for row in values if len(word := row.prediction.strip()) > 2 and word.isalpha()
    ]
    addresses = words + [row.address for row in values] + [row.key for row in keys]
    if not addresses:
        return None
    return _draw_memory(study.memory(addresses[0]))


def _draw_memory(page: MemoryPage) -> MemoryExample:
    """A memory's strongest triggers, equal ones once, and the tokens that its value promotes."""
    shown = dict.fromkeys(Snippet.of(one, BEFORE) for one in page.triggers[: 4 * MEMORY_LINES])
    first = page.promoted[:MEMORY_LINES]
    most = max((abs(one.logit) for one in first), default=0.0) or 1.0
    return MemoryExample(
        address=page.address,
        frequency=page.frequency,
        triggers=tuple(shown)[:MEMORY_LINES],
        promoted=tuple(Push(one.text, max(0.0, one.logit / most)) for one in first),
    )
