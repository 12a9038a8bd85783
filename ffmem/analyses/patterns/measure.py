"""The whole pattern analysis of a scan without people: keys, controls, held-out score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import random_keys
from ffmem.analyses.inputs.blind_readings import READER, reader_name
from ffmem.analyses.inputs.effects import (
    by_depth,
    gain_with_depth,
    mean_effect,
    share_effect,
    with_count,
)
from ffmem.analyses.inputs.related_words import scanned_texts
from ffmem.analyses.inputs.value_rankings import trigger_tokens
from ffmem.analyses.inputs.word_vectors import slot_vectors
from ffmem.analyses.patterns.held_out import Trial, held_out_scores
from ffmem.analyses.patterns.prefixes import (
    CONTROLS,
    Prefix,
    PseudoKey,
    PseudoKeys,
    first_prefixes,
    random_prefixes,
    trigger_prefixes,
)
from ffmem.analyses.patterns.readings import (
    found_sheets,
    permuted_keys,
    read_key,
    second_reader,
    sheet_patterns,
)
from ffmem.analyses.patterns.record import (
    LABELS,
    BlindReadings,
    ControlRate,
    EndingEffects,
    KeyPatterns,
    LayerPatterns,
    PairAgreement,
    Pattern,
    PatternResults,
    Summary,
    TakeoverEffects,
    trigger_labels,
)
from ffmem.analyses.patterns.rule_annotator import Rule, RuleAnnotator
from ffmem.analyses.patterns.semantic_patterns import (
    TopicFinder,
    WordClasses,
    WordContexts,
)
from ffmem.analyses.patterns.surface_patterns import Background
from ffmem.analyses.statistics import Interval, bootstrap, place_of, pool_by_key, resample, wilson
from ffmem.errors import StoreError
from ffmem.steps import steps
from ffmem.store.people.annotators import RULES
from ffmem.store.scan_store import ScanStore
from ffmem.store.slots import TRIGGERS_SHOWN

FEATURE_PREFIXES = 6_000  # random prefixes that features are counted over
POOL = 1_500  # of them, those that meanings are measured on and pseudo-keys drawn from
CALIBRATION = 150  # pseudo-keys of each kind that set the nearness of meanings
CONTROLS_A_KEY = 7  # of a kind: 560 beside 80 keys tell 7 % from 10 %
REFERENCE = 200  # random prefixes that show where a ticked pattern ends
KEYS_AT_ONCE = 4096  # whose triggers are compared with each other
PURPOSE = "patterns"  # sheets for people draw the same keys


def rule_annotator(store: ScanStore, seed: int = 0) -> tuple[RuleAnnotator, PseudoKeys]:
    """The rule annotator, calibrated on this scan's own text, and pseudo-keys to test it with."""
    counted = random_prefixes(store, FEATURE_PREFIXES, seed)
    pool = counted[:POOL]
    if len({prefix.sentence for prefix in pool}) < 2 * TRIGGERS_SHOWN:
        raise StoreError(
            f"{store.folder.root} keeps fewer than {2 * TRIGGERS_SHOWN} sentences of two tokens, "
            "too few to tell patterns from chance; scan more text"
        )
    many = {key: first_prefixes(store, key) for key in _calibration_keys(store, seed)}
    background = Background.of(counted, [prefix for shown in many.values() for prefix in shown])
    pseudo = PseudoKeys(pool, seed, TRIGGERS_SHOWN)
    controls: dict[str, list[tuple[Prefix, ...]]] = {}
    for key, triggers in many.items():
        for control in pseudo.of_each_kind(key.layer, triggers, store):
            controls.setdefault(control.kind, []).append(control.shown)
    texts = scanned_texts(store)
    meanings = TopicFinder.calibrate(WordContexts(texts, background), background, pool, controls)
    classes = WordClasses.calibrate(slot_vectors(texts), counted, controls)
    return RuleAnnotator(background, meanings, classes), pseudo


def _calibration_keys(store: ScanStore, seed: int) -> list[Address]:
    """Random keys, as many from each layer, CALIBRATION in all."""
    each = -(-CALIBRATION // len(store.memories))
    layers = random_keys(store, each, seed, "calibration").values()
    return [key for turn in zip(*layers, strict=False) for key in turn][:CALIBRATION]


def patterns_by_rule(store: ScanStore, keys: int = 10, seed: int = 0) -> PatternResults:
    """Annotate `keys` random keys per layer, and so many times as many controls a kind, by rule."""
    annotator, pseudo = rule_annotator(store, seed)
    drawn = random_keys(store, keys, seed, PURPOSE)
    annotated: list[KeyPatterns] = []
    trials: list[Trial] = []
    controls: list[PseudoKey] = []
    for key in steps([key for layer in drawn.values() for key in layer], "keys"):
        shown = first_prefixes(store, key)
        rules = annotator.rules(key, shown)
        patterns = tuple(rule.pattern for rule in rules)
        annotated.append(KeyPatterns(key, len(shown), patterns))
        trials.append(key_trial(store, key, rules, pseudo))
        controls += pseudo.of_each_kind(key.layer, shown, store)
    control_trials = [
        _control_trial(annotator, pseudo, control) for control in steps(controls, "control keys")
    ]
    seen = [
        (control, tuple(rule.pattern for rule in trial.rules))
        for control, trial in zip(controls, control_trials, strict=True)
    ]
    more = _more_controls(store, pseudo, annotated, CONTROLS_A_KEY - 1)
    seen += [
        (control, annotator.patterns(None, control.shown))
        for control in steps(more, "more control keys")
    ]
    return PatternResults(
        summary=summarise_patterns(RULES, annotated, seed),
        controls=tuple(
            control_rate(
                kind,
                [(found, len(one.shown)) for one, found in seen if one.kind == kind],
            )
            for kind in CONTROLS
        ),
        held_out=tuple(
            held_out_scores(annotator, trials, "keys", seed)
            + held_out_scores(annotator, control_trials, "controls", seed)
        ),
        records=tuple(pattern for key in annotated for pattern in key.patterns),
        drawn={layer: tuple(map(str, found)) for layer, found in drawn.items()},
        dead=sum(not key.triggers for key in annotated),
        semantic_keys=_with_semantic([key.patterns for key in annotated if key.triggers]),
        endings=effects_of_endings(store),
        readings=blind_readings(store, annotator, seed),
    )


def _more_controls(
    store: ScanStore, pseudo: PseudoKeys, keys: Sequence[KeyPatterns], times: int
) -> list[PseudoKey]:
    """So many times more control keys of every kind, for the share with a pattern alone."""
    return [
        control
        for key in keys
        for triggers in [first_prefixes(store, key.key)]
        for _ in range(times)
        for control in pseudo.of_each_kind(key.key.layer, triggers, store)
    ]


def blind_readings(
    store: ScanStore, annotator: RuleAnnotator, seed: int = 0
) -> BlindReadings | None:
    """Figure 2 by a language model that read the demo's keys blind; None in any other scan."""
    found = found_sheets(store)
    if not found.keys:
        return None
    read = [read_key(*pair) for pair in found.keys]
    by_rule = [
        KeyPatterns(key.key, key.triggers, annotator.patterns(key.key, triggers))
        for key, (_, triggers) in zip(read, found.keys, strict=True)
    ]
    name = reader_name(READER)
    labels, rule_labels = (
        [label for key in keys for label in key.labels] for keys in (read, by_rule)
    )
    kinds = dict.fromkeys(str(sheet.control) for sheet in found.controls)
    return BlindReadings(
        summary=summarise_patterns(name, read, seed),
        controls=tuple(
            control_rate(
                kind,
                [
                    (sheet_patterns(sheet), len(sheet.prefixes))
                    for sheet in found.controls
                    if sheet.control == kind
                ],
            )
            for kind in kinds
        ),
        permuted=summarise_patterns(name, permuted_keys(), seed),
        rule=summarise_patterns(RULES, by_rule, seed),
        agreement=(
            second_reader(found),
            PairAgreement.of(name, RULES, len(read), labels, rule_labels),
        ),
        sheets=found.read,
        found=len(found.keys) + len(found.controls),
        records=tuple(pattern for key in read for pattern in key.patterns),
    )


def commonest_ending(last: Tensor, filled: Tensor) -> Tensor:
    """The share of a key's triggers that end in the commonest last token, from [key, trigger].

    NaN for a key without triggers.
    """
    same = (last[:, :, None] == last[:, None, :]) & filled[:, :, None] & filled[:, None, :]
    return same.sum(dim=2).amax(dim=1) / filled.sum(dim=1)


def effects_of_endings(store: ScanStore) -> EndingEffects:
    """Do the triggers of lower keys end alike more often? All keys are read; signs count as one."""
    shares: list[Tensor] = []
    for layer, memories in store.memories.items():
        read = trigger_tokens(store, layer)
        parts = zip(
            read.last[:, :TRIGGERS_SHOWN].split(KEYS_AT_ONCE),
            read.filled[:, :TRIGGERS_SHOWN].split(KEYS_AT_ONCE),
            strict=True,
        )
        same = torch.cat([commonest_ending(*part) for part in parts]).view(-1, memories)
        mean = same.nanmean(dim=0)
        shares.append(mean[~mean.isnan()])
    live = [found for found in shares if len(found)]
    depth = [torch.full((len(found),), place) for place, found in enumerate(live)]
    return ending_effects(
        torch.cat([*live, torch.zeros(0)]),
        torch.cat([*depth, torch.zeros(0, dtype=torch.long)]),
        len(live),
    )


def key_trial(store: ScanStore, key: Address, rules: Sequence[Rule], pseudo: PseudoKeys) -> Trial:
    """A key's triggers beyond those shown, and what to tell them from: random and near misses."""
    triggers = [prefix for prefix, _ in trigger_prefixes(store, key)]
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


def control_rate(kind: str, keys: Sequence[tuple[Sequence[Pattern], int]]) -> ControlRate:
    """The false-pattern rate on control keys of one kind: of each its patterns and prefixes."""
    labels = [label for found, shown in keys for label in trigger_labels(found, shown)]
    return ControlRate(
        kind,
        wilson(sum(bool(found) for found, _ in keys), len(keys)),
        sum(label != "not covered" for label in labels) / len(labels),
        _with_semantic([found for found, _ in keys]),
        sum("semantic" in label for label in labels) / len(labels),
    )


def _with_semantic(keys: Sequence[Sequence[Pattern]]) -> Interval:
    """The share of keys with a semantic pattern."""
    return wilson(
        sum(any(found.kind == "semantic" for found in patterns) for patterns in keys), len(keys)
    )


def summarise_patterns(annotator: str, keys: Sequence[KeyPatterns], seed: int = 0) -> Summary:
    """Fig 2 from annotated keys; keys without any trigger are left out."""
    alive = [key for key in keys if key.triggers]
    by_layer: dict[int, list[KeyPatterns]] = {}
    for key in sorted(alive, key=lambda key: key.key):
        by_layer.setdefault(key.key.layer, []).append(key)
    generator = torch.Generator().manual_seed(seed)
    layers = tuple(_layer(layer, found, generator) for layer, found in by_layer.items())
    overall = _layer(0, alive, generator)
    return Summary(annotator, layers, overall, crossover(layers), _pattern_effects(alive))


def _pattern_effects(keys: Sequence[KeyPatterns]) -> TakeoverEffects:
    """Do shallow patterns lead in lower layers and semantic ones in upper layers?"""
    tally = [Counter(key.labels) for key in keys]
    shallow, both, semantic = (
        torch.tensor([count[label] / key.triggers for count, key in zip(tally, keys, strict=True)])
        for label in LABELS[:3]
    )
    return _takeover_effects(shallow, both, semantic, *_key_depths([key.key for key in keys]))


def _key_depths(keys: Sequence[Address]) -> tuple[torch.Tensor, int]:
    """The layer of each key, numbered from 0 among layers with keys, and their count."""
    layers = sorted({key.layer for key in keys})
    return torch.tensor([layers.index(key.layer) for key in keys], dtype=torch.long), len(layers)


def crossover(layers: Sequence[LayerPatterns]) -> int | None:
    """The first layer from which semantic patterns lead in all later layers, or None."""
    found = None
    for layer in reversed(layers):
        if not layer.semantic_leads:
            break
        found = layer.layer
    return found


def _layer(layer: int, keys: Sequence[KeyPatterns], generator: torch.Generator) -> LayerPatterns:
    counts = torch.tensor([key.triggers for key in keys], dtype=torch.float64)
    tally = [Counter(key.labels) for key in keys]
    by_label: Mapping[str, torch.Tensor] = {
        label: torch.tensor([float(count[label]) for count in tally]) for label in LABELS
    }
    patterns = torch.tensor([float(len(key.patterns)) for key in keys])
    return LayerPatterns(
        layer=layer,
        keys=len(keys),
        triggers=int(counts.sum()),
        shares={label: pool_by_key(found, counts, generator) for label, found in by_label.items()},
        covered=pool_by_key(counts - by_label["not covered"], counts, generator),
        patterns_per_key=bootstrap(patterns, generator),
        with_pattern=wilson(int((patterns > 0).sum()), len(keys)),
    )


SEMANTIC = 10  # of the paper's layers, where semantic patterns take over


def is_semantic_depth(depth: Tensor, layers: int) -> Tensor:
    """Whether a layer, from 0, lies where the paper's layers are semantic."""
    return depth >= max(1, place_of(SEMANTIC, layers))


def _takeover_effects(
    shallow: Tensor, both: Tensor, semantic: Tensor, depth: Tensor, layers: int
) -> TakeoverEffects:
    """Figure 2 by key: shares of triggers that are shallow only, both and semantic only, all [key].

    `depth` [key] counts layers from 0. Lower layers are those before the paper's takeover.
    """
    upper, meaning = is_semantic_depth(depth, layers), both + semantic
    return TakeoverEffects(
        meaning_rises=gain_with_depth(meaning, depth),
        shallow_falls=gain_with_depth(-shallow, depth),
        shallow_leads_below=mean_effect((shallow - semantic)[~upper]),
        semantic_leads_above=mean_effect((meaning - shallow)[upper]),
        meaning_below=share_effect(with_count(meaning[~upper])),
        meaning_above=share_effect(with_count(meaning[upper])),
    )


def ending_effects(same: Tensor, depth: Tensor, layers: int) -> EndingEffects:
    """Shared last tokens: the share of a key's triggers that end in its commonest one, [key]."""
    table = by_depth(with_count(same), is_semantic_depth(depth, layers))
    return EndingEffects(
        same_ending_lower=share_effect(table[:, :2]),
        same_ending_fades=resample(
            table, lambda sums: sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
        ),
    )
