"""The sheets of a scan: its drawn keys with control keys among them, under blind names."""

from __future__ import annotations

import hashlib

from ffmem.address import Address
from ffmem.analyses.random_keys import drawn_keys
from ffmem.annotations.sheets import CHOSEN, Sheet, ShownPrefix
from ffmem.errors import StoreError
from ffmem.patterns.analysis import POOL, PURPOSE
from ffmem.patterns.prefixes import Prefix, PseudoKeys, random_prefixes, trigger_prefixes
from ffmem.patterns.record import LEAST, SHOWN
from ffmem.store.scan_store import ScanStore


def drawn_sheets(store: ScanStore, keys: int = 10, controls: int = 1, seed: int = 0) -> list[Sheet]:
    """Sheets for `keys` random keys a layer and `controls` control keys of each kind a layer.

    The keys are those that `ffmem patterns` draws with the same seed, so that annotators can be
    compared. Keys with fewer than three triggers have no patterns and no sheet. Sheets come in
    the order of their names, which is random.
    """
    pseudo = PseudoKeys(random_prefixes(store, POOL, seed), seed + 1, SHOWN)
    digest = store.manifest.key.digest
    found: list[Sheet] = []
    for layer, drawn in drawn_keys(store, keys, seed, PURPOSE).items():
        alive = [
            (key, triggers)
            for key in drawn
            if len(triggers := [p for p, _ in trigger_prefixes(store, key)][:SHOWN]) >= LEAST
        ]
        for key, triggers in alive:
            name = _blind(digest, seed, str(key))
            found.append(Sheet(name, digest, layer, str(key), None, _shown(triggers)))
        for turn in range(controls if alive else 0):
            matched = pseudo.matched(layer, alive[turn % len(alive)][1])
            for control in (pseudo.random(layer), matched):
                name = _blind(digest, seed, f"{control.kind} {layer} {turn}")
                shown = _shown(list(control.shown))
                found.append(Sheet(name, digest, layer, None, control.kind, shown))
    return sorted(found, key=lambda sheet: sheet.name)


def chosen_sheet(store: ScanStore, key: Address) -> Sheet:
    """A sheet for one key that somebody has picked; refuses a key with too few triggers."""
    triggers = [prefix for prefix, _ in trigger_prefixes(store, key)][:SHOWN]
    if len(triggers) < LEAST:
        raise StoreError(
            f"{key} has {len(triggers)} triggers, and a pattern needs {LEAST}; choose another key"
        )
    digest = store.manifest.key.digest
    name = CHOSEN + _blind(digest, 0, str(key))
    return Sheet(name, digest, key.layer, str(key), None, _shown(triggers))


def _blind(digest: str, seed: int, what: str) -> str:
    return hashlib.sha256(f"{digest} {seed} {what}".encode()).hexdigest()[:8]


def _shown(prefixes: list[Prefix]) -> tuple[ShownPrefix, ...]:
    return tuple(
        ShownPrefix(prefix.text[: len(prefix.text) - len(prefix.last)], prefix.last)
        for prefix in prefixes
    )
