"""Tables 1, 2 and 3 of the paper, made from this model's best memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.predictive_values import ValueRow
from ffmem.analyses.values import Values
from ffmem.patterns.analysis import PatternResults
from ffmem.patterns.record import Pattern
from ffmem.store.memory_page import cut
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN

BANDS = 6  # parts of the depth that each give a row of Table 1
TRIGGERS = 3  # shown of each key
VALUES = 12  # rows of Table 2
BEFORE = 70  # characters of a prefix that are shown


@dataclass(frozen=True)
class ExampleTrigger:
    """A trigger as it is printed: the end of what was read, its last token, and the next one."""

    before: str
    last: str
    next: str


@dataclass(frozen=True)
class KeyRow:
    """One row of Table 1."""

    key: Address
    kinds: str
    description: str
    covers: int  # triggers
    triggers: tuple[ExampleTrigger, ...]


def key_rows(study: PatternResults, store: ScanStore) -> tuple[KeyRow, ...]:
    """From each part of the depth the key whose clearest pattern covers most triggers."""
    layers = sorted(store.memories)
    by_key: dict[Address, list[Pattern]] = {}
    for pattern in sorted(study.records, key=lambda pattern: -len(pattern.ranks)):
        if pattern.key is not None:
            by_key.setdefault(pattern.key, []).append(pattern)
    rows = []
    for band in range(BANDS):
        inside = [key for key in by_key if layers.index(key.layer) * BANDS // len(layers) == band]
        if inside:
            best = min(inside, key=lambda key: (-len(by_key[key][0].ranks), key.index, key))
            rows.append(_key_row(best, by_key[best], store))
    return tuple(rows)


def _key_row(key: Address, patterns: Sequence[Pattern], store: ScanStore) -> KeyRow:
    first = patterns[0]
    triggers = store.triggers(key)
    return KeyRow(
        key=key,
        kinds=" + ".join(sorted({pattern.kind for pattern in patterns}, reverse=True)),
        description=first.description,
        covers=len(first.ranks),
        triggers=tuple(
            ExampleTrigger(cut(one.before, BEFORE), one.last, one.next)
            for one in (triggers[rank - 1] for rank in sorted(first.ranks)[:TRIGGERS])
        ),
    )


@dataclass(frozen=True)
class AnnotatedTrigger:
    """A trigger with the numbers of the patterns that cover it, from 1."""

    trigger: ExampleTrigger
    patterns: tuple[int, ...]


@dataclass(frozen=True)
class AnnotatedKey:
    """Table 3: one key with its patterns in order and every trigger that the annotator saw."""

    key: Address
    patterns: tuple[Pattern, ...]
    triggers: tuple[AnnotatedTrigger, ...]


def annotated_key(study: PatternResults, store: ScanStore) -> AnnotatedKey | None:
    """The drawn key with patterns of both kinds, if any has, whose patterns cover most triggers."""
    by_key: dict[Address, list[Pattern]] = {}
    for pattern in study.records:
        if pattern.key is not None:
            by_key.setdefault(pattern.key, []).append(pattern)

    def merit(key: Address) -> tuple[int, int]:
        patterns = by_key[key]
        covered = {rank for pattern in patterns for rank in pattern.ranks}
        return len({pattern.kind for pattern in patterns}), len(covered)

    best = min(by_key, key=lambda key: (*(-one for one in merit(key)), key), default=None)
    if best is None:
        return None
    patterns = tuple(by_key[best])
    return AnnotatedKey(
        best,
        patterns,
        tuple(
            AnnotatedTrigger(
                ExampleTrigger(cut(one.before, BEFORE), one.last, one.next),
                tuple(n for n, pattern in enumerate(patterns, 1) if rank in pattern.ranks),
            )
            for rank, one in enumerate(store.triggers(best)[:TRIGGERS_SHOWN], 1)
        ),
    )


def value_rows(result: Values) -> tuple[ValueRow, ...]:
    """The values of highest probability with an agreeing trigger, most precise first."""
    agreeing = [row for row in result.predictive.rows if row.before]
    best = sorted(agreeing, key=lambda row: (-row.precision, -row.probability))[:VALUES]
    return tuple(best)
