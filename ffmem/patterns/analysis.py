"""The whole pattern analysis of a scan without people: keys, controls, held-out score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ffmem.address import Address
from ffmem.analyses.controls import random_keys
from ffmem.analyses.inputs.claim_effects import Effects, ending_effects
from ffmem.analyses.statistics import Interval, wilson
from ffmem.errors import StoreError
from ffmem.patterns.embeddings import ClusterFinder, ControlKey, Embedding
from ffmem.patterns.held_out import HeldOutScore, KeyScore, Trial, held_out_scores, key_score
from ffmem.patterns.prefixes import (
    CONTROLS,
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
    key_depths,
    summarise_patterns,
    trigger_labels,
)
from ffmem.patterns.rule_annotator import ANNOTATOR_NAME, Rule, RuleAnnotator
from ffmem.patterns.surface_patterns import Background
from ffmem.steps import steps
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN

FEATURE_PREFIXES = 6_000  # random prefixes that features are counted over
POOL = 1_500  # of them, those that meanings are measured on and pseudo-keys drawn from
CALIBRATION = 150  # pseudo-keys of each kind that set the nearness of meanings
REFERENCE = 200  # random prefixes that show where a ticked pattern ends
PURPOSE = "patterns"  # sheets for people draw the same keys


@dataclass(frozen=True)
class ControlRate:
    """How often an annotator sees a pattern where there is none, and how much it then covers."""

    kind: str  # one of CONTROLS
    false_patterns: Interval  # share of control keys with a pattern
    covered: float  # share of their prefixes
    semantic: Interval | None = None  # share of control keys with a semantic pattern
    semantic_covered: float | None = None  # share of their prefixes


@dataclass(frozen=True)
class PatternResults:
    """Fig 2 by the rule annotator, with what its word is worth.

    `endings` are effects of the tokens that a key's triggers end in, which need no annotator.
    """

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOutScore, ...]
    records: tuple[Pattern, ...]
    drawn: dict[int, tuple[str, ...]]
    dead: int  # drawn keys that nothing in the corpus fires
    nearness: dict[int, float]  # cosine that counts as near, by size of cluster
    seed: int
    embedding: str = "states"  # what meanings are compared by
    semantic_keys: Interval | None = None  # share of live keys with a semantic pattern
    endings: Effects = field(default_factory=dict)
    keys: tuple[KeyScore, ...] = ()  # the live ones, in the order in which they were drawn


def rule_annotator(
    store: ScanStore, embed: Callable[[Background], Embedding], seed: int = 0
) -> tuple[RuleAnnotator, PseudoKeys]:
    """The rule annotator, calibrated on this scan's own text, and pseudo-keys to test it with."""
    counted = random_prefixes(store, FEATURE_PREFIXES, seed)
    pool = counted[:POOL]
    if len({prefix.sentence for prefix in pool}) < 2 * TRIGGERS_SHOWN:
        raise StoreError(
            f"{store.folder.root} keeps fewer than {2 * TRIGGERS_SHOWN} sentences of two tokens, "
            "too few to tell patterns from chance; scan more text"
        )
    background = Background.of(counted)
    pseudo = PseudoKeys(pool, seed, TRIGGERS_SHOWN)
    surface = RuleAnnotator(background)
    controls: dict[str, list[ControlKey]] = {}
    for key in _calibration_keys(store, seed):
        triggers = _triggers(store, key)[:TRIGGERS_SHOWN]
        removed = surface.shared_words(triggers)
        for control in pseudo.of_each_kind(key.layer, triggers, store):
            removals = control_removals(control.shown, surface, triggers, removed)
            controls.setdefault(control.kind, []).append((control.shown, removals))
    meanings = ClusterFinder.calibrate(embed(background), background, pool, controls)
    return RuleAnnotator(background, meanings), pseudo


def _calibration_keys(store: ScanStore, seed: int) -> list[Address]:
    """Random keys, as many from each layer, CALIBRATION in all."""
    each = -(-CALIBRATION // len(store.memories))
    layers = random_keys(store, each, seed, "calibration").values()
    return [key for turn in zip(*layers, strict=False) for key in turn][:CALIBRATION]


def control_removals(
    shown: Sequence[Prefix],
    surface: RuleAnnotator,
    triggers: Sequence[Prefix],
    removed: Sequence[frozenset[int]],
) -> list[frozenset[int]]:
    """The words that control prefixes lose: their own shared ones, and as a key's triggers do.

    From each prefix go the words as far from its end as those that a trigger of the key loses.
    """
    found = []
    for turn, (prefix, own) in enumerate(zip(shown, surface.shared_words(shown), strict=True)):
        like = triggers[turn % len(triggers)] if triggers else prefix
        places = removed[turn % len(triggers)] if triggers else frozenset[int]()
        shift = len(prefix.words) - len(like.words)
        found.append(own | {at + shift for at in places if at + shift >= 0})
    return found


def patterns_by_rule(
    store: ScanStore,
    embed: Callable[[Background], Embedding],
    keys: int = 10,
    seed: int = 0,
    embedding: str = "text",
) -> PatternResults:
    """Annotate `keys` random keys per layer, and as many control keys of each kind, by rule.

    `embedding` is how the result names what meanings were compared by.
    """
    annotator, pseudo = rule_annotator(store, embed, seed)
    drawn = random_keys(store, keys, seed, PURPOSE)
    annotated: list[KeyPatterns] = []
    trials: list[Trial] = []
    controls: list[PseudoKey] = []
    same_ending: dict[Address, float] = {}
    for key in steps([key for layer in drawn.values() for key in layer], "keys"):
        shown = _triggers(store, key)[:TRIGGERS_SHOWN]
        if shown:
            same_ending[key] = commonest_ending(shown)
        rules = annotator.rules(key, shown)
        patterns = tuple(rule.pattern for rule in rules)
        annotated.append(KeyPatterns(key, len(shown), patterns))
        trials.append(key_trial(store, key, rules, pseudo))
        controls += pseudo.of_each_kind(key.layer, shown, store)
    control_trials = [
        _control_trial(annotator, pseudo, control) for control in steps(controls, "control keys")
    ]
    return PatternResults(
        summary=summarise_patterns(ANNOTATOR_NAME, annotated, seed),
        controls=tuple(
            control_rate(kind, controls, [trial.rules for trial in control_trials])
            for kind in CONTROLS
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
        embedding=embedding,
        semantic_keys=_with_semantic([key.patterns for key in annotated if key.triggers]),
        endings=effects_of_endings(same_ending),
        keys=tuple(
            key_score(annotator, str(one.key), one.triggers, trial)
            for one, trial in zip(annotated, trials, strict=True)
            if one.triggers
        ),
    )


def commonest_ending(prefixes: Sequence[Prefix]) -> float:
    """The share of prefixes that end in the commonest last token."""
    return max(Counter(prefix.last for prefix in prefixes).values()) / len(prefixes)


def effects_of_endings(shares: dict[Address, float]) -> Effects:
    """Do the triggers of lower keys end alike more often?"""
    if not shares:
        return {}
    return ending_effects(torch.tensor(list(shares.values())), *key_depths(list(shares)))


def _triggers(store: ScanStore, key: Address) -> list[Prefix]:
    return [prefix for prefix, _ in trigger_prefixes(store, key)]


def key_trial(store: ScanStore, key: Address, rules: Sequence[Rule], pseudo: PseudoKeys) -> Trial:
    """A key's triggers beyond those shown, and what to tell them from: random and near misses."""
    triggers = _triggers(store, key)
    held = triggers[TRIGGERS_SHOWN : 2 * TRIGGERS_SHOWN]
    return Trial(rules, held, pseudo.random(key.layer).shown, near_misses(store, key, triggers))


def near_misses(store: ScanStore, key: Address, triggers: Sequence[Prefix]) -> list[Prefix]:
    """The strongest quarter of the key's random sample, without its triggers."""
    sample = sorted(trigger_prefixes(store, key, "sample"), key=lambda found: -found[1])
    below = [prefix for prefix, _ in sample if prefix not in triggers]
    return below[: -(-len(sample) // 4)]


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
    covered = meant = total = 0
    for control, found in mine:
        patterns = [rule.pattern for rule in found]  # type: ignore[attr-defined]
        labels = trigger_labels(patterns, len(control.shown))
        covered += sum(label != "not covered" for label in labels)
        meant += sum("semantic" in label for label in labels)
        total += len(labels)
    all_patterns = [[rule.pattern for rule in found] for _, found in mine]  # type: ignore[attr-defined]
    return ControlRate(
        kind,
        wilson(sum(bool(found) for _, found in mine), len(mine)),
        covered / total,
        _with_semantic(all_patterns),
        meant / total,
    )


def _with_semantic(keys: Sequence[Sequence[Pattern]]) -> Interval:
    """The share of keys with a semantic pattern."""
    return wilson(
        sum(any(found.kind == "semantic" for found in patterns) for patterns in keys), len(keys)
    )


BAR = 0.1  # most control keys of the hardest kind that may have a pattern


def hardest_control(controls: Sequence[ControlRate]) -> ControlRate | None:
    """The kind of control keys on which most patterns were seen."""
    return max(controls, key=lambda found: found.false_patterns.estimate, default=None)
