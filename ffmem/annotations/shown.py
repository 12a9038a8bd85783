"""The prefixes that a sheet shows, found again in the scan they were drawn from."""

from __future__ import annotations

from collections.abc import Sequence

from ffmem.address import Address
from ffmem.annotations.sheets import Sheet
from ffmem.errors import StoreError
from ffmem.patterns.analysis import POOL
from ffmem.patterns.prefixes import Prefix, prefix_at, random_prefixes, trigger_prefixes
from ffmem.patterns.record import SHOWN
from ffmem.store.scan_store import ScanStore


def shown_prefixes(
    store: ScanStore, sheets: Sequence[Sheet], seed: int = 0
) -> dict[str, list[Prefix]]:
    """The prefixes of every sheet that was drawn from this scan, by the sheet's name, in order.

    Those of control keys are looked for among the random prefixes of `seed` first, then everywhere.
    """
    mine = [sheet for sheet in sheets if sheet.scan == store.manifest.key.digest]
    controls = {sheet.name: _texts(sheet) for sheet in mine if sheet.key is None}
    wanted = {text for texts in controls.values() for text in texts}
    known = {prefix.text: prefix for prefix in random_prefixes(store, POOL, seed)}
    known |= _searched(store, wanted - known.keys())
    return {
        sheet.name: _triggers(store, sheet.key)
        if sheet.key is not None
        else [known[text] for text in controls[sheet.name]]
        for sheet in mine
    }


def _texts(sheet: Sheet) -> list[str]:
    return [shown.before + shown.last for shown in sheet.prefixes]


def _triggers(store: ScanStore, key: str) -> list[Prefix]:
    return [prefix for prefix, _ in trigger_prefixes(store, Address.parse(key))[:SHOWN]]


def _searched(store: ScanStore, wanted: set[str]) -> dict[str, Prefix]:
    """Prefixes by their text, among all that were kept."""
    found: dict[str, Prefix] = {}
    for row in range(len(store.kept) if wanted else 0):
        text, start = store.kept.sentence(row), int(store.kept.starts[row])
        ends = store.kept.token_ends[start : int(store.kept.starts[row + 1])]
        for position, end in enumerate(ends, 1):
            if (prefix := text[: int(end)]) in wanted and prefix not in found:
                found[prefix] = prefix_at(store, row, position)
    lost = wanted - found.keys()
    if lost:
        raise StoreError(
            f"the control prefix {min(lost)!r} is not in the scan that its sheet was drawn from; "
            "give the database that belongs to this scan"
        )
    return found
