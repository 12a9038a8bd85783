"""What annotators' patterns are worth: do they tell a key's other triggers from other prefixes?"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.statistics import wilson
from ffmem.annotations.sheets import Said, Saying, Sheet, as_said, shown_prefixes
from ffmem.errors import StoreError
from ffmem.patterns.analysis import ControlRate, key_trial, reference_prefixes, rule_annotator
from ffmem.patterns.clusters import Embedding
from ffmem.patterns.held_out import HeldOut, Trial, held_out
from ffmem.patterns.prefixes import PseudoKeys
from ffmem.patterns.record import Pattern, Summary, summary
from ffmem.patterns.rule_annotator import ticked_rules
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


@dataclass(frozen=True)
class AnsweredStudy:
    """What one annotator found, and how often where there was nothing to find."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOut, ...]
    records: tuple[Pattern, ...]


def answered_study(
    store: ScanStore,
    sayings: Sequence[Saying],
    annotator: str,
    embed: Callable[[], Callable[[Background], Embedding]],
    seed: int = 0,
) -> AnsweredStudy:
    """Fig 2 from the newest answers of one annotator; keys that somebody picked are left out.

    `embed` is called once there are any answers.
    """
    drawn = [saying for saying in sayings if not saying.sheet.chosen]
    mine = [saying for saying in drawn if saying.annotator == annotator]
    keys = [saying.annotated() for saying in mine if saying.sheet.key is not None]
    if not keys:
        if mine:
            raise StoreError(
                f"{annotator!r} has answered control keys only ({len(mine)} sheets), so there is "
                "no Fig 2; see `ffmem annotate score` and `ffmem annotate agreement`"
            )
        known = ", ".join(sorted({saying.annotator for saying in sayings})) or "nobody yet"
        raise StoreError(
            f"there are no answers by {annotator!r} (answers are by: {known}); import sheets with "
            "`ffmem annotate import`"
        )
    controls = []
    for kind in ("random", "matched"):
        those = [saying for saying in mine if saying.sheet.control == kind]
        labels = [label for saying in those for label in saying.labels]
        if those:
            false = wilson(sum(bool(saying.said) for saying in those), len(those))
            covered = sum(label != "not covered" for label in labels) / len(labels)
            controls.append(ControlRate(kind, false, covered))
    records = tuple(pattern for key in keys for pattern in key.patterns)
    return AnsweredStudy(
        summary=summary(annotator, keys, seed),
        controls=tuple(controls),
        held_out=worth(store, mine, embed(), seed).annotators.get(annotator, ()),
        records=records,
    )


def answers_by_rule(
    store: ScanStore,
    sheets: Sequence[Sheet],
    embed: Callable[[Background], Embedding],
    seed: int = 0,
) -> Iterator[tuple[Sheet, tuple[Said, ...]]]:
    """Answer every sheet drawn from this scan; control sheets by the prefixes they show."""
    annotator, _ = rule_annotator(store, embed, seed)
    shown = shown_prefixes(store, sheets, seed)
    for sheet in sheets:
        if sheet.name in shown:
            key = Address.parse(sheet.key) if sheet.key else Address(sheet.layer, 0)
            yield sheet, as_said(annotator.patterns(key, shown[sheet.name]))
