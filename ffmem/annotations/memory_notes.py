"""What a study knows of some memories: labels, patterns and strongest triggers, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ffmem.address import Address
from ffmem.analyses.patterns.by_memory import study_patterns
from ffmem.errors import AddressError
from ffmem.memories.why.record import MemoryNotes, Why
from ffmem.store.people.memory_labels import label_texts
from ffmem.store.scan_store import ScanStore
from ffmem.text import Snippet

if TYPE_CHECKING:
    from ffmem.memories.prompt_answer import MemoryTerm, PromptAnswer

TRIGGERS, WIDTH = 3, 60  # of each memory, and the characters of each


def with_notes(found: Why, store: ScanStore) -> Why:
    """The same answer with a study's notes on every memory of its list that was scanned."""
    notes = memory_notes(store, [one.address for one in found.memories])
    memories = tuple(replace(one, notes=notes.get(one.address)) for one in found.memories)
    return replace(found, memories=memories)


def with_term_notes(found: PromptAnswer, store: ScanStore) -> PromptAnswer:
    """A prompt's answer with notes on its memories; those that fire after the same together."""
    terms = found.plain.explanation
    if terms is None:
        return found
    notes = memory_notes(store, [one.address for one in terms.strongest])
    noted = [replace(one, notes=notes.get(one.address)) for one in terms.strongest]
    groups: dict[str, list[MemoryTerm]] = {}
    for one in noted:
        groups.setdefault(one.notes.fires_after if one.notes else str(one.address), []).append(one)
    together = replace(terms, strongest=tuple(one for each in groups.values() for one in each))
    return replace(found, plain=replace(found.plain, explanation=together))


def memory_notes(store: ScanStore, addresses: Iterable[Address]) -> dict[Address, MemoryNotes]:
    """The notes on those that were scanned; a gated one without sign is its positive cell."""
    labels, patterns = label_texts(store), study_patterns(store.folder)
    found = {}
    for address in addresses:
        try:
            cell = store.cells.resolve(address)[0]
        except AddressError:  # of a layer or an expert that was left out
            continue
        triggers = store.triggers(cell)[:TRIGGERS]
        found[address] = MemoryNotes(
            label=labels.get(str(cell), ""),
            patterns=tuple(dict.fromkeys(one.text for one in patterns.foremost(str(cell)))),
            triggers=tuple(str(Snippet.of(trigger, WIDTH)) for trigger in triggers),
        )
    return found
