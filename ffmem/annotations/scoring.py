"""What annotators' patterns are worth: do they tell a key's other triggers from other prefixes?"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.ticked import ticked_rules
from ffmem.annotations.sheets import Saying
from ffmem.annotations.shown import shown_prefixes
from ffmem.patterns.analysis import key_trial, reference_prefixes, rule_annotator
from ffmem.patterns.clusters import Embedding
from ffmem.patterns.held_out import HeldOut, Trial, held_out
from ffmem.patterns.prefixes import PseudoKeys
from ffmem.patterns.surface_rules import Background
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class Worth:
    """The held-out score of every annotator, on keys and on control keys."""

    annotators: dict[str, tuple[HeldOut, ...]]


def worth(
    store: ScanStore,
    sayings: Sequence[Saying],
    embed: Callable[[Background], Embedding],
    seed: int = 0,
) -> Worth:
    """Score everybody's patterns, by class, with one yardstick: what the ticked prefixes share.

    The prefixes that a sheet's patterns must be told from are drawn once for a sheet, so that
    annotators of the same sheets are compared on the same ones.
    """
    annotator, pseudo = rule_annotator(store, embed, seed)
    shown = shown_prefixes(store, [saying.sheet for saying in sayings], seed)
    others = reference_prefixes(store, seed)
    trials: dict[str, dict[str, list[Trial]]] = {}
    for saying in sayings:
        sheet = saying.sheet
        if sheet.name not in shown:
            continue
        key = Address.parse(sheet.key) if sheet.key else Address(max(sheet.layer, 1), 0)
        prefixes = shown[sheet.name]
        rules = ticked_rules(annotator, saying.patterns(key), prefixes, others)
        draw = PseudoKeys(pseudo.pool, seed + zlib.crc32(sheet.name.encode()), pseudo.shown)
        if sheet.key:
            trial = key_trial(store, key, rules, draw)
        else:
            same = draw.random(0) if sheet.control == "random" else draw.matched(0, prefixes)
            trial = Trial(rules, same.shown, draw.random(0).shown, ())
        on = "keys" if sheet.key else "controls"
        trials.setdefault(saying.annotator, {"keys": [], "controls": []})[on].append(trial)
    return Worth(
        {
            who: tuple(row for on in found for row in held_out(annotator, found[on], on, seed))
            for who, found in sorted(trials.items())
        }
    )
