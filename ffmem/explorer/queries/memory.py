"""One memory: all that the store knows of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ffmem.address import Address
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.analyses.patterns.findings import KeyFinding, findings_of
from ffmem.analyses.patterns.record import Pattern
from ffmem.explorer.context import StudyContext
from ffmem.store.memory_page import MemoryPage, memory_page
from ffmem.store.slots import TRIGGERS_SHOWN

CLOCK_STEP = 1_000_000_000  # nanoseconds after which a further write has another time


@dataclass(frozen=True)
class MemoryAnswer:
    """One memory: its page, what people, rules and models say of it, and the way to the next."""

    page: MemoryPage
    patterns: tuple[Pattern, ...]
    findings: tuple[KeyFinding, ...]  # what patterns on request are worth
    previous: Address | None
    next: Address | None


def cell_of(context: StudyContext, address: str) -> Address:
    """The cell that an address names; a gated memory named without sign is its + cell."""
    return context.store.cells.resolve(Address.guess(address) or Address.parse(address))[0]


def memory_answer(
    context: StudyContext, cell: Address, shown: int = TRIGGERS_SHOWN
) -> MemoryAnswer:
    """All that can be read without the model; a few kilobytes, whatever the size of the store."""
    return MemoryAnswer(
        page=memory_page(context.lookup, cell, shown),
        patterns=memory_patterns(context, str(cell)),
        findings=findings_of(context.store, str(cell)),
        previous=_neighbour(context, cell, -1),
        next=_neighbour(context, cell, +1),
    )


def memory_patterns(context: StudyContext, address: str) -> tuple[Pattern, ...]:
    """Patterns that analyses have left, and those that people have given on pages or sheets."""
    found = _without_repeats(study_patterns(context.store.folder).of(address))
    if not context.has_annotations:
        return found
    by_people = _people_patterns(context, address)
    if not by_people:
        return found
    known = {(pattern.annotator, pattern.description) for pattern in found}
    new = [one for one in by_people if (one.annotator, one.description) not in known]
    return tuple(sorted([*found, *new], key=lambda pattern: -len(pattern.ranks)))


def _people_patterns(context: StudyContext, address: str) -> tuple[Pattern, ...]:
    """What people say of one memory; of a file all answers are read at once, not for each page."""
    mark = _file_mark(Path(context.database or context.store.folder.annotations))
    if mark is not None:
        return _all_answers(context, mark).get(address, ())
    scan = context.store.manifest.key.digest
    answers = context.annotations.answers(scan, address)
    return tuple(pattern for answer in answers for pattern in answer.patterns())


def _file_mark(file: Path) -> tuple[int, int] | None:
    """The time and size of a file; None if it is not one, or so new that a change may not show."""
    try:
        found = file.stat()
    except OSError:
        return None
    settled = time.time_ns() - found.st_mtime_ns > CLOCK_STEP
    return (found.st_mtime_ns, found.st_size) if settled else None


@lru_cache(maxsize=2)
def _all_answers(context: StudyContext, _mark: tuple[int, int]) -> dict[str, tuple[Pattern, ...]]:
    found: dict[str, list[Pattern]] = defaultdict(list)
    for answer in context.annotations.answers(context.store.manifest.key.digest):
        if answer.sheet.key is not None:
            found[answer.sheet.key] += answer.patterns()
    return {key: tuple(patterns) for key, patterns in found.items()}


def _without_repeats(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """Each annotator's patterns once, though several results may have them."""
    return tuple({(one.annotator, one.description): one for one in patterns}.values())


def _neighbour(context: StudyContext, cell: Address, step: int) -> Address | None:
    """The memory before or after, over all layers; None at either end."""
    cells, layers = context.store.cells, list(context.store.memories)
    index = cells.parts(cell.layer).index(cell) + step
    if 0 <= index < context.store.memories[cell.layer]:
        return cells.parts(cell.layer).address(cell.layer, index, cell.sign)
    place = layers.index(cell.layer) + step
    if not 0 <= place < len(layers):
        return None
    layer = layers[place]
    last = context.store.memories[layer] - 1
    return cells.parts(layer).address(layer, 0 if step > 0 else last, cell.sign)
