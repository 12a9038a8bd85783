"""What the paper says of patterns, and what decides each claim."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from ffmem.analyses.analysis import PaperQuestion
from ffmem.analyses.claim import BLIND, Effect, Finding, claim, exact, share_text, up_to
from ffmem.analyses.patterns.record import (
    ControlRate,
    JudgedPatterns,
    JudgesPatterns,
    LayerPatterns,
    PatternResults,
    Summary,
)
from ffmem.analyses.result_files import plain_result, read_result
from ffmem.analyses.statistics import Interval, difference, wilson
from ffmem.records import restore
from ffmem.store.folder import StudyFolder
from ffmem.store.people.annotators import is_language_model, is_person

Patterns = PatternResults | JudgedPatterns
MOST_FALSE = 0.1  # of control keys that may have a pattern


@claim(
    "patterns",
    "all of 160 keys",
    "share",
    "more than 95 % of the keys have one, and less than 10 % of the hardest control keys (by "
    "readers: fewer control keys than keys)",
    figure="patterns",
)
def every_key_has_a_pattern(result: Patterns) -> Finding:
    """Every key has a pattern that people can see in its triggers."""

    def decide(summary: Summary, controls: Sequence[ControlRate], by_reader: bool) -> Finding:
        number, control = summary.overall.with_pattern, _false_patterns(controls)
        sees = _sees_patterns(number, controls, by_reader)
        effects = (Effect("keys with a pattern", number, 0.95), sees)
        return Finding(number, control, "control keys with a pattern", effects)

    return _by_annotators(result, decide)


@claim(
    "patterns",
    "3.6",
    "number",
    "it has more than 2, and less than 10 % of the hardest control keys have any (by readers: "
    "fewer control keys than keys)",
    figure="patterns",
)
def several_patterns_a_key(result: Patterns) -> Finding:
    """A key has several patterns."""

    def decide(summary: Summary, controls: Sequence[ControlRate], by_reader: bool) -> Finding:
        number = summary.overall.patterns_per_key
        sees = _sees_patterns(summary.overall.with_pattern, controls, by_reader)
        return Finding(number, None, "", (Effect("patterns per key", number, 2), sees))

    return _by_annotators(result, decide)


@claim(
    "patterns",
    "65 to 80 %",
    "share",
    "more than 65 % are, and more than of the hardest control keys’ prefixes",
    figure="patterns",
)
def most_triggers_are_covered(result: Patterns) -> Finding:
    """Most triggers are covered by a pattern."""

    def decide(summary: Summary, controls: Sequence[ControlRate], _: bool) -> Finding:
        number = summary.overall.covered
        chance = max((control.covered for control in controls), default=math.nan)
        control = exact(chance, sum(control.false_patterns.n for control in controls))
        layers = [layer.covered.estimate for layer in summary.layers]
        effects = (
            Effect("triggers covered", number, 0.65),
            Effect("more than on control keys", number if controls else exact(math.nan, 0), chance),
        )
        detail = f"{share_text(min(layers))} to {share_text(max(layers))} by layer"
        return Finding(number, control, "prefixes of control keys", effects, detail)

    return _by_annotators(result, decide)


@claim(
    "patterns",
    "from layer 10 of 16 on",
    "share",
    "with depth the share of triggers with a meaning rises and that of shallow ones alone falls; "
    "below 10/16 of it more are shallow only than semantic only, above more have a meaning than "
    "are shallow only; a rule, which sees words first, cannot deny it",
    figure="patterns",
)
def semantic_takes_over(result: Patterns) -> Finding:
    """Lower layers are shallow, upper layers semantic."""

    def decide(summary: Summary, _: Sequence[ControlRate], __: bool) -> Finding:
        crossover, layers = summary.crossover, len(summary.layers)
        detail = "leads nowhere up to the last layer"
        if crossover is not None:
            detail = f"leads from layer {crossover} of {layers} on"
        above, below = summary.effects.meaning_above, summary.effects.meaning_below
        return Finding(above, below, "lower layers", _takeover(summary), detail)

    return _only_readers_deny(result, _by_annotators(result, decide))


def _takeover(summary: Summary) -> tuple[Effect, ...]:
    found = summary.effects
    return (
        Effect("triggers with a meaning rise with depth", found.meaning_rises),
        Effect("shallow ones fall", found.shallow_falls),
        Effect("shallow leads below", found.shallow_leads_below),
        Effect("semantic leads above", found.semantic_leads_above),
    )


def _only_readers_deny(result: Patterns, found: Finding) -> Finding:
    """A rule that finds words first has not shown that meanings are absent."""
    denied = [effect.name for effect in found.effects if effect.found.high <= effect.bar]
    if isinstance(result, JudgedPatterns) or not denied:
        return found
    reason = f"by rule not seen ({denied[0]}), and only readers can deny it"
    return replace(found, reason=reason, awaits="people")


@claim(
    "patterns",
    "often",
    "share",
    "more than a quarter of a key’s triggers below 10/16 of the depth end in its commonest last "
    "token, and more than above; all keys are read",
)
def lower_triggers_end_alike(result: Patterns) -> Finding:
    """In lower layers the triggers of a key often share their last word."""
    found = result.endings
    number, fades = found.same_ending_lower, found.same_ending_fades
    upper = exact(number.estimate - fades.estimate, fades.n)
    effects = (  # any keys that fire on single tokens end alike: the controls must not fade so
        Effect("more than in upper layers", fades),
        Effect("triggers that end alike, lower layers", number, 0.25),
    )
    return Finding(number, upper, "upper layers", effects, whole=True)


def _by_annotators(
    result: Patterns, decide: Callable[[Summary, Sequence[ControlRate], bool], Finding]
) -> Finding:
    """The finding of people, or else of language models: of the one who is hardest to convince.

    One who also read keys of the model with permuted weights is compared with what they show.
    """
    if isinstance(result, PatternResults):
        found = decide(result.summary, result.controls, False)
        by = f"by annotator ‘{result.summary.annotator}’"
        return _with_detail(found, by)
    outcomes = [(decide(one.summary, one.controls, True), one) for one in result.judges]
    weakest, judge = max(outcomes, key=lambda one: max(e.chance for e in one[0].effects))
    if judge.permuted is None:
        weakest = replace(weakest, alone=BLIND)
    else:
        same = decide(judge.permuted, judge.controls, True)
        weakest = replace(weakest, same_judge=same)
    rule = decide(result.rule.summary, result.rule.controls, False).number.estimate
    by = f"by {judge.annotator}"
    if is_person(judge.annotator) or len(result.judges) > 1:
        kind = "people" if is_person(judge.annotator) else "language models"
        by += f", the hardest to convince of {len(result.judges)} {kind}"
    agreement = "" if math.isnan(result.alpha) else f" (alpha {result.alpha:.2f})"
    weakest = replace(weakest, awaits="more keys, read by the same")
    return _with_detail(weakest, f"{by}{agreement}; by rule {rule:.2f}")


def _with_detail(found: Finding, more: str) -> Finding:
    detail = f"{found.detail}, {more}" if found.detail else more
    return replace(found, detail=detail)


def _false_patterns(controls: Sequence[ControlRate]) -> Interval:
    """Of the kinds of control keys, the one that was taken in most often."""
    rates = [control.false_patterns for control in controls if control.false_patterns.n]
    return max(rates, key=lambda rate: rate.estimate, default=exact(math.nan, 0))


def _sees_patterns(
    with_pattern: Interval, controls: Sequence[ControlRate], by_reader: bool
) -> Effect:
    """That what is seen is there: a rule sees few on controls, a reader more on keys than there."""
    if not by_reader:
        return Effect(
            "few control keys have a pattern", up_to(MOST_FALSE, _false_patterns(controls))
        )
    rates = [control.false_patterns for control in controls]
    trials = sum(rate.n for rate in rates)
    seen = wilson(sum(round(rate.estimate * rate.n) for rate in rates if rate.n), trials)
    return Effect("more keys than blind control keys", difference(with_pattern, seen))


def _judges_of_patterns(folder: StudyFolder) -> tuple[JudgesPatterns, ...]:
    """All patterns that `ffmem patterns --annotator` has left in a folder."""
    found = [read_result(path).result for path in folder.matching(folder.result("patterns-*"))]
    return tuple(
        JudgesPatterns(
            restore(Summary, one["summary"]), restore(tuple[ControlRate, ...], one["controls"])
        )
        for one in found
    )


def with_judgements(result: PatternResults, folder: StudyFolder) -> Patterns:
    """The patterns with what people said of them, or else language models that read blind."""
    judges = _judges_of_patterns(folder)
    people = tuple(one for one in judges if is_person(one.annotator))
    if people:
        alpha = plain_result(folder, "agreement").get("alpha")
        return JudgedPatterns(result, people, restore(float, alpha))
    models = tuple(one for one in judges if is_language_model(one.annotator) and one.controls)
    if (read := result.readings) is not None:
        models = (JudgesPatterns(read.summary, read.controls, read.permuted), *models)
    return JudgedPatterns(result, models, math.nan) if models else result


CLAIMS = (  # in the paper's order
    every_key_has_a_pattern,
    several_patterns_a_key,
    most_triggers_are_covered,
    semantic_takes_over,
    lower_triggers_end_alike,
)

QUESTIONS: tuple[PaperQuestion[Patterns], ...] = (
    PaperQuestion(
        "Does every key have a pattern that its triggers share?",
        every_key_has_a_pattern,
        lambda result: _layer_means(result, lambda layer: layer.with_pattern.estimate),
    ),
    PaperQuestion(
        "How many of its triggers do the patterns cover?",
        most_triggers_are_covered,
        lambda result: _layer_means(result, lambda layer: layer.covered.estimate),
    ),
    PaperQuestion(
        "Are the upper layers semantic? (share of triggers with a meaning)",
        semantic_takes_over,
        lambda result: _layer_means(result, lambda layer: layer.with_meaning),
    ),
)


def _layer_means(result: Patterns, value: Callable[[LayerPatterns], float]) -> list[float]:
    """A number of each layer: by the rule, or the mean over those who judged."""
    judges = (result,) if isinstance(result, PatternResults) else result.judges
    found: dict[int, list[float]] = {}
    for judge in judges:
        for layer in judge.summary.layers:
            found.setdefault(layer.layer, []).append(value(layer))
    return [statistics.fmean(found[layer]) for layer in sorted(found)]
