"""The whole pattern analysis of a scan without people: keys, controls, held-out score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.controls import random_keys
from ffmem.analyses.statistics import Interval, wilson
from ffmem.errors import StoreError
from ffmem.patterns.clusters import ClusterFinder, Embedding
from ffmem.patterns.held_out import HeldOutScore, Trial, held_out_scores
from ffmem.patterns.prefixes import (
    Prefix,
    PseudoKey,
    PseudoKeys,
    random_prefixes,
    trigger_prefixes,
)
from ffmem.patterns.record import (
    KeyPatterns,
    Pattern,
    Summary,
    summarise_patterns,
    trigger_labels,
)
from ffmem.patterns.rule_annotator import NAME, Rule, RuleAnnotator
from ffmem.patterns.surface_patterns import Background
from ffmem.steps import steps
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN

COUNTED = 6_000  # random prefixes that features are counted over
POOL = 1_500  # of them, those that meanings are measured on and pseudo-keys drawn from
CALIBRATION = 150  # pseudo-keys of each kind that set the nearness of meanings
REFERENCE = 200  # random prefixes that show where a ticked pattern ends
PURPOSE = "patterns"  # sheets for people draw the same keys


@dataclass(frozen=True)
class ControlRate:
    """How often an annotator sees a pattern where there is none, and how much it then covers."""

    kind: str  # "random" or "matched" prefixes
    false_patterns: Interval  # share of control keys with a pattern
    covered: float  # share of their prefixes


@dataclass(frozen=True)
class PatternResults:
    """Fig 2 by the rule annotator, with what its word is worth."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOutScore, ...]
    records: tuple[Pattern, ...]
    drawn: dict[int, tuple[str, ...]]
    dead: int  # drawn keys that nothing in the corpus fires
    nearness: dict[int, float]  # cosine that counts as near, by size of cluster
    seed: int


def rule_annotator(
    store: ScanStore, embed: Callable[[Background], Embedding], seed: int = 0
) -> tuple[RuleAnnotator, PseudoKeys]:
    """The rule annotator, calibrated on this scan's own text, and pseudo-keys to test it with."""
    counted = random_prefixes(store, COUNTED, seed)
    pool = counted[:POOL]
    if len({prefix.sentence for prefix in pool}) < 2 * TRIGGERS_SHOWN:
        raise StoreError(
            f"{store.folder.root} keeps fewer than {2 * TRIGGERS_SHOWN} sentences of two tokens, "
            "too few to tell patterns from chance; scan more text"
        )
    background = Background.of(counted)
    pseudo = PseudoKeys(pool, seed, TRIGGERS_SHOWN)
    each = -(-CALIBRATION // len(store.memories))
    layers = random_keys(store, each, seed, "calibration").values()
    keys = [key for layer in layers for key in layer]
    matched = [
        pseudo.of_matching_frequency(key.layer, _triggers(store, key)).shown
        for key in keys[:CALIBRATION]
    ]
    calibration = [pseudo.random(0).shown for _ in range(CALIBRATION)] + matched
    meanings = ClusterFinder.calibrate(embed(background), background, pool, calibration)
    return RuleAnnotator(background, meanings), pseudo


def patterns_by_rule(
    store: ScanStore, embed: Callable[[Background], Embedding], keys: int = 10, seed: int = 0
) -> PatternResults:
    """Annotate `keys` random keys per layer, and as many control keys of each kind, by rule."""
    annotator, pseudo = rule_annotator(store, embed, seed)
    drawn = random_keys(store, keys, seed, PURPOSE)
    annotated: list[KeyPatterns] = []
    trials: list[Trial] = []
    controls: list[PseudoKey] = []
    for key in steps([key for layer in drawn.values() for key in layer], "keys"):
        shown = _triggers(store, key)[:TRIGGERS_SHOWN]
        rules = annotator.rules(key, shown)
        patterns = tuple(rule.pattern for rule in rules)
        annotated.append(KeyPatterns(key, len(shown), patterns))
        trials.append(key_trial(store, key, rules, pseudo))
        controls += [pseudo.random(key.layer), pseudo.of_matching_frequency(key.layer, shown)]
    control_trials = [
        _control_trial(annotator, pseudo, control) for control in steps(controls, "control keys")
    ]
    return PatternResults(
        summary=summarise_patterns(NAME, annotated, seed),
        controls=tuple(
            control_rate(kind, controls, [trial.rules for trial in control_trials])
            for kind in ("random", "matched")
        ),
        held_out=tuple(
            held_out_scores(annotator, trials, "keys", seed)
            + held_out_scores(annotator, control_trials, "controls", seed)
        ),
        records=tuple(pattern for key in annotated for pattern in key.patterns),
        drawn={layer: tuple(map(str, found)) for layer, found in drawn.items()},
        dead=sum(not key.triggers for key in annotated),
        nearness=annotator.meanings.nearness if annotator.meanings else {},
        seed=seed,
    )


def _triggers(store: ScanStore, key: Address) -> list[Prefix]:
    return [prefix for prefix, _ in trigger_prefixes(store, key)]


def key_trial(store: ScanStore, key: Address, rules: Sequence[Rule], pseudo: PseudoKeys) -> Trial:
    """A key's triggers beyond those shown, and what to tell them from: random and near misses."""
    triggers = _triggers(store, key)
    weak = sorted(trigger_prefixes(store, key, "sample"), key=lambda found: found[1])
    near_misses = [prefix for prefix, _ in weak if prefix not in triggers]
    held = triggers[TRIGGERS_SHOWN : 2 * TRIGGERS_SHOWN]
    return Trial(rules, held, pseudo.random(key.layer).shown, near_misses[:TRIGGERS_SHOWN])


def reference_prefixes(store: ScanStore, seed: int) -> list[Prefix]:
    """Random prefixes that no pseudo-key is drawn from, as far as the text goes."""
    return random_prefixes(store, POOL + REFERENCE, seed)[-REFERENCE:]


def _control_trial(annotator: RuleAnnotator, pseudo: PseudoKeys, control: PseudoKey) -> Trial:
    rules = annotator.rules(None, control.shown)
    return Trial(rules, control.held, pseudo.random(control.layer).shown, ())


def control_rate(
    kind: str, controls: Sequence[PseudoKey], rules: Sequence[Sequence[object]]
) -> ControlRate:
    """The false-pattern rate on the control keys of one kind."""
    mine = [
        (control, found)
        for control, found in zip(controls, rules, strict=True)
        if control.kind == kind
    ]
    covered = total = 0
    for control, found in mine:
        patterns = [rule.pattern for rule in found]  # type: ignore[attr-defined]
        labels = trigger_labels(patterns, len(control.shown))
        covered += sum(label != "not covered" for label in labels)
        total += len(labels)
    return ControlRate(
        kind, wilson(sum(bool(found) for _, found in mine), len(mine)), covered / total
    )
