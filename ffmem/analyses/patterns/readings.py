"""Blind readings of the demo's keys: the sheets whose prefixes a scan has, and what was read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.inputs.blind_readings import (
    READER,
    SECOND,
    ReadSheet,
    read_sheets,
    reader_name,
)
from ffmem.analyses.patterns.prefixes import Prefix, first_prefixes, prefixes_of_texts
from ffmem.analyses.patterns.record import KeyPatterns, PairAgreement, Pattern, trigger_labels
from ffmem.errors import FfmemError
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class FoundSheets:
    """Of the sheets that were read of the demo, those of keys and of controls that a scan has."""

    keys: tuple[tuple[ReadSheet, tuple[Prefix, ...]], ...]  # with the key's triggers here
    controls: tuple[ReadSheet, ...]
    read: int


def found_sheets(store: ScanStore) -> FoundSheets:
    """The sheets that are this scan's too: all prefixes the same, in any order."""
    sheets = [sheet for sheet in read_sheets() if sheet.model == "demo"]
    pairs = [(sheet, _key_prefixes(store, sheet)) for sheet in sheets if sheet.key]
    keys = tuple((sheet, found) for sheet, found in pairs if found)
    controls = [sheet for sheet in sheets if sheet.key is None] if keys else []
    known = prefixes_of_texts(store, {text for sheet in controls for text in sheet.prefixes})
    same = tuple(sheet for sheet in controls if known.keys() >= set(sheet.prefixes))
    return FoundSheets(keys, same, len(sheets))


def _key_prefixes(store: ScanStore, sheet: ReadSheet) -> tuple[Prefix, ...]:
    """The key's triggers, strongest first, if they are the sheet's prefixes; else none."""
    try:
        (key,) = store.cells.resolve(Address.parse(str(sheet.key)))
    except (FfmemError, ValueError):  # another model's scan: no such key, or one with two signs
        return ()
    found = tuple(first_prefixes(store, key))
    return found if sorted(p.text for p in found) == sorted(sheet.prefixes) else ()


def sheet_patterns(
    sheet: ReadSheet, prefixes: Sequence[Prefix] = (), reader: str = READER
) -> tuple[Pattern, ...]:
    """What a reader saw in a sheet, by the ranks that its prefixes have among `prefixes`."""
    ranks = defaultdict[str, list[int]](list)
    for rank, text in enumerate([prefix.text for prefix in prefixes] or sheet.prefixes, 1):
        ranks[text].append(rank)
    rank_of = [ranks[text].pop(0) for text in sheet.prefixes]
    key = None if sheet.key is None else Address.parse(sheet.key)
    return tuple(
        Pattern(
            key,
            one.description,
            one.kind,
            tuple(sorted(rank_of[number - 1] for number in one.prefixes)),
            reader_name(reader),
        )
        for one in sheet.answers[reader]
    )


def read_key(sheet: ReadSheet, prefixes: Sequence[Prefix] = ()) -> KeyPatterns:
    """A key as the reader of all sheets saw it."""
    key = Address.parse(str(sheet.key))
    return KeyPatterns(key, len(sheet.prefixes), sheet_patterns(sheet, prefixes))


def permuted_keys() -> list[KeyPatterns]:
    """The same reader's patterns in keys of the model with permuted weights."""
    return [read_key(sheet) for sheet in read_sheets() if sheet.model == "permuted"]


def second_reader(found: FoundSheets) -> PairAgreement:
    """How far two readers agree on the keys that both read; permuted ones are among them."""
    sheets = [sheet for sheet, _ in found.keys]
    sheets += [sheet for sheet in read_sheets() if sheet.model == "permuted"]
    both = [sheet for sheet in sheets if SECOND in sheet.answers]
    first, second = (
        [
            label
            for sheet in both
            for label in trigger_labels(sheet_patterns(sheet, reader=reader), len(sheet.prefixes))
        ]
        for reader in (READER, SECOND)
    )
    return PairAgreement.of(reader_name(READER), reader_name(SECOND), len(both), first, second)
