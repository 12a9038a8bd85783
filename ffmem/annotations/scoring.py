"""What annotators' patterns are worth: do they tell a key's other triggers from other prefixes?"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ffmem.analyses.statistics import wilson
from ffmem.annotations.sheets import PatternAnswer, Sheet, SheetAnswer, sheet_prefixes, to_answers
from ffmem.errors import StoreError
from ffmem.patterns.analysis import ControlRate, key_trial, reference_prefixes, rule_annotator
from ffmem.patterns.embeddings import Embedding
from ffmem.patterns.held_out import HeldOutScore, Trial, held_out_scores
from ffmem.patterns.prefixes import PseudoKeys
from ffmem.patterns.record import Pattern, Summary, summarise_patterns
from ffmem.patterns.rule_annotator import rules_from_examples
from ffmem.patterns.surface_patterns import Background
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class AnnotatorScores:
    """The held-out score of every annotator, on keys and on control keys."""

    annotators: dict[str, tuple[HeldOutScore, ...]]


def score_annotators(
    store: ScanStore,
    sayings: Sequence[SheetAnswer],
    embed: Callable[[Background], Embedding],
    seed: int = 0,
) -> AnnotatorScores:
    """Score everybody's patterns, by class, with one yardstick: what the ticked prefixes share.

    The prefixes that a sheet's patterns must be told from are drawn once for a sheet, so that
    annotators of the same sheets are compared on the same ones.
    """
    annotator, pseudo = rule_annotator(store, embed, seed)
    shown = sheet_prefixes(store, [saying.sheet for saying in sayings], seed)
    others = reference_prefixes(store, seed)
    trials: dict[str, dict[str, list[Trial]]] = {}
    for saying in sayings:
        sheet = saying.sheet
        if sheet.name not in shown:
            continue
        key, prefixes = sheet.address, shown[sheet.name]
        rules = rules_from_examples(annotator, saying.patterns(), prefixes, others)
        draw = PseudoKeys(pseudo.pool, seed + zlib.crc32(sheet.name.encode()), pseudo.shown)
        if key is not None:
            trial = key_trial(store, key, rules, draw)
        else:
            same = (
                draw.random(0)
                if sheet.control == "random"
                else draw.of_matching_frequency(0, prefixes)
            )
            trial = Trial(rules, same.shown, draw.random(0).shown, ())
        on = "controls" if key is None else "keys"
        trials.setdefault(saying.annotator, {"keys": [], "controls": []})[on].append(trial)
    return AnnotatorScores(
        {
            who: tuple(
                row for on in found for row in held_out_scores(annotator, found[on], on, seed)
            )
            for who, found in sorted(trials.items())
        }
    )


@dataclass(frozen=True)
class AnnotatorPatterns:
    """What one annotator found, and how often where there was nothing to find."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOutScore, ...]
    records: tuple[Pattern, ...]


def patterns_by_annotator(
    store: ScanStore,
    sayings: Sequence[SheetAnswer],
    annotator: str,
    embed: Callable[[], Callable[[Background], Embedding]],
    seed: int = 0,
) -> AnnotatorPatterns:
    """Fig 2 from the newest answers of one annotator; keys that somebody picked are left out.

    `embed` is called once there are any answers.
    """
    drawn = [saying for saying in sayings if not saying.sheet.by_choice]
    mine = [saying for saying in drawn if saying.annotator == annotator]
    keys = [saying.key_patterns() for saying in mine if saying.sheet.key is not None]
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
    return AnnotatorPatterns(
        summary=summarise_patterns(annotator, keys, seed),
        controls=tuple(controls),
        held_out=score_annotators(store, mine, embed(), seed).annotators.get(annotator, ()),
        records=records,
    )


def answers_by_rule(
    store: ScanStore,
    sheets: Sequence[Sheet],
    embed: Callable[[Background], Embedding],
    seed: int = 0,
) -> Iterator[tuple[Sheet, tuple[PatternAnswer, ...]]]:
    """Answer every sheet drawn from this scan; control sheets by the prefixes they show."""
    annotator, _ = rule_annotator(store, embed, seed)
    shown = sheet_prefixes(store, sheets, seed)
    for sheet in sheets:
        if sheet.name in shown:
            yield sheet, to_answers(annotator.patterns(sheet.address, shown[sheet.name]))
