"""The paper's claims, in its order: each docstring is one, each body says which effects decide it.

The paper's numbers are from its prose, never read off a figure. A claim holds if every effect lies
above its bar and the first is twice as large as without training, all by interval (`verdicts.py`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from ffmem.analyses.causal import Causal
from ffmem.analyses.composition import Composition
from ffmem.analyses.inputs.claim_effects import lower_and_upper
from ffmem.analyses.last_layer import LastLayer
from ffmem.analyses.predictive_values import UPPER, ValueGroup
from ffmem.analyses.refinement import LayerStep, Refinement
from ffmem.analyses.removal import Removal
from ffmem.analyses.statistics import Interval, difference, wilson
from ffmem.analyses.values import LayerAgreement, Values
from ffmem.patterns.analysis import ControlRate, PatternResults
from ffmem.patterns.record import Summary
from ffmem.report.verdicts import (
    Effect,
    Finding,
    JudgedCases,
    JudgedPatterns,
    Verdict,
    claim,
    exact,
    interval_text,
    judge_claims,
    results_with_judgements,
)
from ffmem.studies.study import Study

Patterns = PatternResults | JudgedPatterns
MOST_FALSE = 0.1  # of control keys that may have a pattern


@claim(
    "patterns",
    "all of 160 keys",
    "share",
    "more than 95 % of the keys, and less than 10 % of the hardest control keys, have one",
)
def every_key_has_a_pattern(result: Patterns) -> Finding:
    """Every key has a pattern that people can see in its triggers."""

    def decide(summary: Summary, controls: Sequence[ControlRate]) -> Finding:
        number, control = summary.overall.with_pattern, _false_patterns(controls)
        effects = (Effect("keys with a pattern", number, 0.95), _few_false_patterns(control))
        return Finding(number, control, "control keys with a pattern", effects)

    return _by_annotators(result, decide)


@claim(
    "patterns",
    "3.6",
    "number",
    "it has more than 2, and less than 10 % of the hardest control keys have any",
)
def several_patterns_a_key(result: Patterns) -> Finding:
    """A key has several patterns."""

    def decide(summary: Summary, controls: Sequence[ControlRate]) -> Finding:
        number = summary.overall.patterns_per_key
        false = _few_false_patterns(_false_patterns(controls))
        return Finding(number, None, "", (Effect("patterns per key", number, 2), false))

    return _by_annotators(result, decide)


@claim(
    "patterns",
    "65 to 80 %",
    "share",
    "more than 65 % are, and more than of the hardest control keys’ prefixes",
)
def most_triggers_are_covered(result: Patterns) -> Finding:
    """Most triggers are covered by a pattern."""

    def decide(summary: Summary, controls: Sequence[ControlRate]) -> Finding:
        number = summary.overall.covered
        chance = max((control.covered for control in controls), default=math.nan)
        control = exact(chance, sum(control.false_patterns.n for control in controls))
        layers = [layer.covered.estimate for layer in summary.layers]
        effects = (
            Effect("triggers covered", number, 0.65),
            Effect("more than on control keys", number if controls else exact(math.nan, 0), chance),
        )
        detail = f"{_percent(min(layers))} to {_percent(max(layers))} by layer"
        return Finding(number, control, "prefixes of control keys", effects, detail)

    return _by_annotators(result, decide)


@claim(
    "patterns",
    "from layer 10 of 16 on",
    "share",
    "shallow triggers outnumber semantic ones in the layers below 10/16 of the depth, and semantic "
    "ones shallow ones above; a rule, which sees words first, cannot deny it",
)
def semantic_takes_over(result: Patterns) -> Finding:
    """Lower layers are shallow, upper layers semantic."""

    def decide(summary: Summary, _: Sequence[ControlRate]) -> Finding:
        crossover, layers = summary.crossover, len(summary.layers)
        detail = "leads nowhere up to the last layer"
        if crossover is not None:
            detail = f"leads from layer {crossover} of {layers} on"
        last = summary.layers[-1].shares
        shallow = "shallow only, last layer"
        effects = _takeover(summary)
        return Finding(last["semantic"], last["shallow"], shallow, effects, detail)

    return _only_people_deny(result, _by_annotators(result, decide))


def _takeover(summary: Summary) -> tuple[Effect, ...]:
    found = summary.effects
    return (
        Effect("semantic gains on shallow with depth", found["takeover"]),
        Effect("shallow leads below", found["shallow_leads_below"]),
        Effect("semantic leads above", found["semantic_leads_above"]),
    )


def _only_people_deny(result: Patterns, found: Finding) -> Finding:
    """A rule that finds words first has not shown that meanings are absent."""
    denied = [effect.name for effect in found.effects if effect.found.high <= effect.bar]
    if isinstance(result, JudgedPatterns) or not denied:
        return found
    reason = f"by rule not seen ({denied[0]}), and only people can deny it"
    return replace(found, reason=reason)


@claim(
    "patterns",
    "often",
    "share",
    "more than a quarter of a key’s triggers below 10/16 of the depth end in its commonest last "
    "token, and more than above",
)
def lower_triggers_end_alike(result: Patterns) -> Finding:
    """In lower layers the triggers of a key often share their last word."""
    found = result.endings
    number, fades = found["same_ending_lower"], found["same_ending_fades"]
    upper = exact(number.estimate - fades.estimate, fades.n)
    effects = (
        Effect("triggers that end alike, lower layers", number, 0.25),
        Effect("more than in upper layers", fades),
    )
    return Finding(number, upper, "upper layers", effects)


def _by_annotators(
    result: Patterns, decide: Callable[[Summary, Sequence[ControlRate]], Finding]
) -> Finding:
    """The finding of people where there are any: that of the one who is hardest to convince."""
    if isinstance(result, PatternResults):
        found = decide(result.summary, result.controls)
        by = f"by annotator ‘{result.summary.annotator}’"
        return _with_detail(found, by)
    outcomes = [(decide(one.summary, one.controls), one.summary) for one in result.people]
    weakest, summary = max(outcomes, key=lambda one: max(e.chance for e in one[0].effects))
    rule = decide(result.rule.summary, result.rule.controls).number.estimate
    by = f"by {summary.annotator}, the hardest to convince of {len(result.people)} people"
    agreement = "" if math.isnan(result.alpha) else f" (alpha {result.alpha:.2f})"
    return _with_detail(weakest, f"{by}{agreement}; by rule {rule:.2f}")


def _with_detail(found: Finding, more: str) -> Finding:
    detail = f"{found.detail}, {more}" if found.detail else more
    return replace(found, detail=detail)


def _false_patterns(controls: Sequence[ControlRate]) -> Interval:
    """Of the kinds of control keys, the one that was taken in most often."""
    rates = [control.false_patterns for control in controls if control.false_patterns.n]
    return max(rates, key=lambda rate: rate.estimate, default=exact(math.nan, 0))


def _few_false_patterns(control: Interval) -> Effect:
    return Effect("few control keys have a pattern", _up_to(MOST_FALSE, control))


@claim(
    "removal",
    "most in every layer",
    "change",
    "the mean change is lower by more than 5 points than without the first and without a random "
    "token, and lower in the lower and in the upper layers",
)
def last_token_matters_most(result: Removal) -> Finding:
    """A key needs the end of its trigger: removing the last token costs most."""
    measured = [layer for layer in result.layers if layer.triggers]
    most = [
        layer
        for layer in measured
        if layer.last.mean.estimate < min(layer.first.mean.estimate, layer.random.mean.estimate)
    ]
    effects = (
        Effect("last token costs more", result.effects["last_most"], 5),
        Effect("more in lower layers", result.effects["last_most_lower"]),
        Effect("more in upper layers", result.effects["last_most_upper"]),
    )
    return Finding(
        _mean([layer.last.mean for layer in measured]),
        _mean([layer.first.mean for layer in measured]),
        "first token",
        effects,
        detail=f"in {len(most)} of {len(measured)} layers",
    )


@claim(
    "removal",
    "shrinks",
    "change",
    "the mean change in the upper layers is smaller by more than 5 points",
)
def last_token_fades(result: Removal) -> Finding:
    """The last token matters less in upper layers."""
    lower, upper = lower_and_upper([layer for layer in result.layers if layer.triggers])
    below, there = (_mean([layer.last.mean for layer in part]) for part in (lower, upper))
    effects = (Effect("smaller in upper layers", result.effects["last_fades"], 5),)
    return Finding(there, below, "lower layers", effects)


@claim(
    "removal",
    "least",
    "change",
    "the mean change is smaller than without a random token, by more than 1 point, and than "
    "without the last",
)
def first_token_matters_least(result: Removal) -> Finding:
    """Removing the first token costs least."""
    measured = [layer for layer in result.layers if layer.triggers]
    effects = (
        Effect("first token costs less than a random one", result.effects["first_least"], 1),
        Effect("less than the last", result.effects["first_above_last"]),
    )
    first, random = (
        [getattr(layer, name).mean for layer in measured] for name in ("first", "random")
    )
    return Finding(_mean(first), _mean(random), "random token", effects)


@claim(
    "values",
    "two thirds",
    "share",
    "feed-forward layers have more than 60 % of the numbers in the matrices of all blocks; the "
    "shape decides it, so training cannot",
)
def layers_are_most_parameters(result: Values) -> Finding:
    """Feed-forward layers hold two thirds of the parameters, attention the rest."""
    share = result.feed_forward_share
    if math.isnan(share):
        raise KeyError("feed_forward_share")
    number = Interval(share, share, share, sum(layer.all.n for layer in _all_cells(result)))
    return Finding(number, None, "", (Effect("share of the parameters", number, 0.6),))


@claim(
    "values",
    "near 0",
    "share",
    "less than 1 % of the keys with triggers, over all lower layers",
)
def lower_values_do_not_agree(result: Values) -> Finding:
    """In lower layers a value's top token hardly ever follows its key's strongest trigger."""
    number = result.effects["agreement_lower"]
    effects = (Effect("agreement below 1 %", _up_to(0.01, number)),)
    worst = max(lower_and_upper(_all_cells(result))[0], key=lambda layer: layer.filled.estimate)
    detail = f"at most {_percent(worst.filled.estimate)} in layer {worst.layer}"
    return Finding(number, None, "", effects, detail)


@claim(
    "values",
    "up to 3.5 %",
    "share",
    "agreement is higher than in the lower layers by more than half a point, and higher than with "
    "shuffled keys; keys without triggers do not count",
)
def upper_values_agree(result: Values) -> Finding:
    """In upper layers a value's top token follows its key's strongest trigger."""
    found = result.effects
    upper = lower_and_upper(_all_cells(result))[1]
    best = max(upper, key=lambda layer: layer.filled.estimate)
    number = found["agreement_upper"]
    chance = exact(number.estimate - found["agreement_above_shuffled"].estimate, number.n)
    every = sum(layer.all.estimate * layer.all.n for layer in upper)
    every /= max(sum(layer.all.n for layer in upper), 1)
    effects = (
        Effect("higher than in lower layers", found["agreement_rise"], 0.005),
        Effect("higher than with shuffled keys", found["agreement_above_shuffled"]),
    )
    return Finding(
        number,
        chance,
        "keys shuffled",
        effects,
        detail=f"lower layers {_percent(found['agreement_lower'].estimate)}, at most "
        f"{_percent(best.filled.estimate)} in layer {best.layer}; of all keys, as the paper "
        f"counts, {_percent(every)}",
    )


@claim(
    "values",
    "3.5 against 0.0004 %",
    "share",
    "agreement in the upper layers is more than ten times one in the vocabulary",
)
def upper_values_beat_chance(result: Values) -> Finding:
    """Agreement in upper layers is far above a random token's."""
    number, uniform = result.effects["agreement_upper"], 1 / result.vocabulary
    effects = (Effect("ten times a random token’s", number, 10 * uniform),)
    return Finding(number, exact(uniform, number.n), "a random token", effects)


@claim(
    "values",
    "not asked there",
    "share",
    "agreement in the upper layers is more than a random token of the text gives",
    source="own",
)
def values_know_more_than_frequency(result: Values) -> Finding:
    """Values follow their keys, not the frequency of tokens."""
    number, more = result.effects["agreement_upper"], result.effects["agreement_above_unigram"]
    chance = exact(number.estimate - more.estimate, number.n)
    effects = (Effect("more than frequency gives", more),)
    return Finding(number, chance, "tokens of the text", effects)


@claim(
    "values",
    "not asked there",
    "share",
    "agreement in the upper layers is more than with the token just read",
    source="own",
)
def values_follow_the_next_token(result: Values) -> Finding:
    """Values promote the next token, not the one just read (which the released script takes)."""
    number, more = result.effects["agreement_upper"], result.effects["agreement_above_last_token"]
    chance = exact(number.estimate - more.estimate, number.n)
    effects = (Effect("more than with the token just read", more),)
    return Finding(number, chance, "the token just read", effects)


@claim(
    "values",
    "improves with depth",
    "rank",
    "the rank in powers of two is lower by more than a quarter than in the lower layers, and than "
    "with shuffled keys",
)
def ranks_improve(result: Values) -> Finding:
    """The next token ranks higher under values of upper layers."""
    lower, upper = lower_and_upper([row for row in result.ranks if row.cells in ("", "both")])
    there, below, chance = (
        exact(statistics.median(values) / result.vocabulary, sum(layer.n for layer in part))
        for part, values in (
            (upper, [layer.quantiles[2] for layer in upper]),
            (lower, [layer.quantiles[2] for layer in lower]),
            (upper, [layer.shuffled_quantiles[2] for layer in upper]),
        )
    )
    effects = (
        Effect("better than in lower layers", result.effects["rank_rise"], 0.25),
        Effect("better than with shuffled keys", result.effects["rank_above_shuffled"], 0.25),
    )
    detail = f"median; lower layers {_percent(below.estimate)}"
    return Finding(there, chance, "keys shuffled", effects, detail)


@claim(
    "values",
    "rises",
    "share",
    "agreement in the twentieth of highest probability is more than 2 points above the lowest one, "
    "and above shuffled keys; keys without triggers do not count",
)
def sure_values_are_right(result: Values) -> Finding:
    """The higher a value's top-token probability, the more often it agrees."""
    first, last = result.quantile_bins[0], result.quantile_bins[-1]
    effects = (
        Effect("above the lowest twentieth", result.effects["sure_rise"], 0.02),
        Effect("above shuffled keys", result.effects["sure_above_shuffled"]),
    )
    detail = f"the lowest twentieth {_percent(first.agreement.estimate)}"
    return Finding(last.agreement, last.shuffled, "keys shuffled", effects, detail)


@claim(
    "values",
    "97 of 100",
    "share",
    "more than 10 points above the upper layers’ share of all values",
)
def predictive_values_are_high_up(result: Values) -> Finding:
    """The 100 values with the highest top-token probability are in the upper layers."""
    group = result.predictive.largest
    number, base = wilson(group.upper, group.n), _upper_share(result)
    effects = (Effect("above the share of all values", _less(number, base), 0.1),)
    detail = f"layers from {result.predictive.first_upper_layer} on"
    return Finding(number, exact(base, group.n), "all values", effects, detail)


@claim(
    "values",
    "46 of 100",
    "share",
    "more than 5 points above random values of the same layers",
)
def predictive_values_predict(result: Values) -> Finding:
    """Of the 100 values with the highest top-token probability, many have an agreeing trigger."""

    def share(group: ValueGroup) -> Interval:
        return wilson(group.agreeing, group.n)

    there, chance = share(result.predictive.largest), share(result.predictive.random_same_layers)
    effects = (Effect("above random values", difference(there, chance), 0.05),)
    return Finding(there, chance, "random values, same layers", effects)


@claim(
    "composition",
    "10 to 50 % of a layer",
    "share",
    "the mean share is between 10 and 50 % in every layer",
)
def many_memories_are_active(result: Composition) -> Finding:
    """Hundreds of memories are active for a prefix."""
    active = [layer.mean_active / layer.memories for layer in result.activity]
    effects = (Effect("within 10 and 50 % everywhere", result.effects["activity_in_range"]),)
    return Finding(
        exact(statistics.fmean(active), result.prefixes),
        None,
        "",
        effects,
        detail=f"{_percent(min(active))} to {_percent(max(active))} by layer",
    )


@claim(
    "composition",
    "dip at layer 10 of 16",
    "share",
    "at 9/16 to 11/16 of the depth a layer lies below all others but the first, the two before it "
    "fall to it and the two after it rise from it",
)
def activity_dips(result: Composition) -> Finding:
    """Activity dips where the paper's does, at 10/16 of the depth."""
    layers = result.activity
    lowest = min(layers[1:] or layers, key=lambda layer: layer.mean_active / layer.memories)
    effects = (Effect("a dip", result.effects["dip"]),)
    detail = f"lowest after layer 1 in layer {lowest.layer} of {len(layers)}"
    number = exact(lowest.mean_active / lowest.memories, result.prefixes)
    first = exact(layers[0].mean_active / layers[0].memories, result.prefixes)
    return Finding(number, first, "first layer", effects, detail)


@claim(
    "composition,patterns",
    "both at layer 10 of 16",
    "share",
    "activity dips there, shallow triggers lead below and semantic ones from there on",
)
def the_dip_is_where_semantic_takes_over(result: Composition, patterns: Patterns) -> Finding:
    """Activity dips where semantic patterns take over."""
    dip, takeover = activity_dips.check(result), semantic_takes_over.check(patterns)
    effects, detail = (*dip.effects, *takeover.effects), f"{dip.detail}; semantic {takeover.detail}"
    denied = dip.effects[0].found.high <= 0  # that alone is enough to deny both
    reason = "" if denied else takeover.reason
    return Finding(dip.number, None, "", effects, detail, reason)


@claim(
    "composition",
    "at least 68 % in every layer",
    "share",
    "more than 68 % of the prefixes in every layer; the lowest layer is shown",
)
def layers_compose(result: Composition) -> Finding:
    """A layer mostly says what none of its memories says."""
    lowest = min(result.zero_agreement, key=lambda layer: layer.all.estimate)
    effects = (Effect("zero agreement", result.effects["composed"], 0.68),)
    detail = f"lowest in layer {lowest.layer}"
    control = "random directions as values"
    return Finding(lowest.all, lowest.random_values, control, effects, detail)


@claim(
    "composition",
    "60 %",
    "share",
    "more than 5 points more often than in all cases of the same layer",
)
def agreement_is_on_stop_words(result: Composition) -> Finding:
    """Where a memory agrees with its layer, the token is often a stop word."""
    cases, more = result.agreeing[0], result.effects["stop_words"]
    effects = (Effect("more often than in the same layer", more, 0.05),)
    detail = f"within layers {_points(more)}"
    return Finding(cases.stop_word, cases.stop_word_base, "all cases", effects, detail)


@claim(
    "composition",
    "43 %",
    "share",
    "more than 5 points more often than in all cases of the same layer",
)
def agreement_is_on_short_prefixes(result: Composition) -> Finding:
    """Where a memory agrees with its layer, the prefix is often short."""
    cases, more = result.agreeing[0], result.effects["short_prefixes"]
    effects = (Effect("more often than in the same layer", more, 0.05),)
    detail = f"within layers {_points(more)}"
    return Finding(cases.short, cases.short_base, "all cases", effects, detail)


@claim(
    "refinement",
    "about a third",
    "share",
    "more than 25 % at 5/16 of the depth, and more than of other prefixes’ tokens",
)
def a_third_is_settled_early(result: Refinement) -> Finding:
    """A third of the predictions is settled in the bottom few layers."""
    number, more = (
        result.effects[name] for name in ("settled_early", "settled_early_above_others")
    )
    effects = (
        Effect("settled", number, 0.25),
        Effect("more than of other prefixes’ tokens", more),
    )
    chance = exact(number.estimate - more.estimate, number.n)
    return Finding(number, chance, "other prefixes’ tokens", effects)


@claim(
    "refinement",
    "most",
    "share",
    "more than half of the prefixes have the final token on top of the last layer’s residual",
)
def most_are_settled_before_the_last_layer(result: Refinement) -> Finding:
    """Most predictions are settled before the last layer."""
    number, last = result.effects["settled_before_last"], _steps(result)[-1]
    effects = (Effect("settled", number, 0.5),)
    return Finding(number, last.shuffled, "other prefixes’ tokens", effects)


@claim(
    "refinement",
    "fast from layer 10 on",
    "share",
    "the mean gain per layer is larger in the upper layers by more than half a point",
)
def growth_is_late(result: Refinement) -> Finding:
    """From the middle on, predictions settle faster (gain per layer)."""
    lower, upper = lower_and_upper(_steps(result))
    early = (lower[-1].settled.estimate - lower[0].settled.estimate) / max(len(lower) - 1, 1)
    late = (upper[-1].settled.estimate - lower[-1].settled.estimate) / len(upper)
    effects = (Effect("faster in upper layers", result.effects["late_growth"], 0.005),)
    prefixes = result.prefixes
    return Finding(exact(late, prefixes), exact(early, prefixes), "lower layers", effects)


@claim(
    "refinement",
    "rises",
    "share",
    "the mean probability rises by more than 1 point from the first layer to the last",
)
def confidence_rises(result: Refinement) -> Finding:
    """The residual's probability for the final token rises with depth."""
    steps = _steps(result)
    effects = (Effect("higher in the last layer", result.effects["confidence"], 0.01),)
    first, last = steps[0].mean_probability, steps[-1].mean_probability
    return Finding(last, first, "first layer", effects)


@claim(
    "refinement",
    "the vast majority",
    "share",
    "more than half of the prefixes in every layer after the first, the lowest of which is shown",
)
def residual_decides(result: Refinement) -> Finding:
    """In most cases a layer leaves the residual's top token in place."""
    kept = [layer.residual.estimate + layer.agreement.estimate for layer in _steps(result)]
    number = result.effects["kept"]
    effects = (Effect("left in place", number, 0.5),)
    detail = f"up to {_percent(max(kept))}; layer 1 {_percent(kept[0])}"
    return Finding(number, None, "", effects, detail)


@claim(
    "refinement",
    "residual far above agreement",
    "share",
    "in more than three of four such cases after layer 1 the layer alone says something else",
)
def the_residual_wins_without_agreement(result: Refinement) -> Finding:
    """Where the residual's token stays, the layer mostly did not agree with it."""
    number = result.effects["residual_of_kept"]
    return Finding(number, None, "", (Effect("against the layer", number, 0.75),))


@claim(
    "refinement",
    "composition far above ffn",
    "share",
    "more than three of four changes after layer 1 are to neither token",
)
def changes_are_compositions(result: Refinement) -> Finding:
    """Where the token changes, it is rarely to the layer's own."""
    number, first = result.effects["composition_of_changes"], _steps(result)[0]
    changed = first.composition.estimate + first.ffn.estimate
    share = first.composition.estimate / changed if changed else math.nan
    effects = (Effect("changes to neither token", number, 0.75),)
    return Finding(number, None, "", effects, f"layer 1 {_percent(share)}")


@claim(
    "refinement",
    "a conjecture",
    "share",
    "the old token falls more than the new one rises, from the mean logit, in more than half of "
    "the changes after layer 1, and more often than with another prefix’s layer output",
    source="conjecture",
)
def layers_veto(result: Refinement) -> Finding:
    """A change is a veto: the layer pushes the old token down."""
    number, more = result.effects["veto"], result.effects["veto_above_foreign"]
    effects = (
        Effect("more often than with another prefix’s layer output", more),
        Effect("more than half of the changes", number, 0.5),
    )
    control = result.effects["foreign_veto"]
    return Finding(number, control, "another prefix’s layer output", effects)


@claim(
    "last-layer",
    "34 of 100 related, by people",
    "share",
    "every person calls less than half of the changes related; a rule cannot decide it",
)
def last_changes_are_distant(result: LastLayer | JudgedCases) -> Finding:
    """Most changes in the last layer go to an unrelated token."""
    if isinstance(result, LastLayer):
        reason = "nobody has judged the cases yet; the rule’s share is shown"
        effects = (Effect("more than half are distant", _up_to(1, result.related), 0.5),)
        return Finding(result.related, result.shuffled, "shuffled pairs", effects, reason=reason)
    most = max(result.people, key=lambda one: one.related.estimate)
    effects = (Effect("more than half are distant", _up_to(1, most.related), 0.5),)
    agreement = "" if math.isnan(result.alpha) else f" (alpha {result.alpha:.2f})"
    rule = _percent(result.rule.related.estimate)
    detail = f"by {most.annotator}, who calls most related, of {len(result.people)} people"
    detail += f"{agreement}; by rule {rule}"
    return Finding(most.related, most.controls, "blind controls", effects, detail)


@claim(
    "causal",
    "not tested there",
    "number",
    "the change is below zero and below that of another active memory",
    source="own",
)
def silencing_matters(result: Causal) -> Finding:
    """A memory is a cause: silenced on its triggers, its tokens lose (log-probability)."""
    own = _mean([layer.silenced.value_log_probability for layer in result.layers])
    other = _mean([layer.other_silenced.value_log_probability for layer in result.layers])
    worse = sum(
        layer.silenced.value_log_probability.estimate
        < layer.other_silenced.value_log_probability.estimate
        for layer in result.layers
    )
    pairs = [layer.lost_more for layer in result.layers if layer.lost_more is not None]
    more = _mean(pairs) if len(pairs) == len(result.layers) else difference(other, own)
    effects = (Effect("loses more than another memory", more), Effect("loses", _up_to(0, own)))
    detail = f"more than another memory in {worse} of {len(result.layers)} layers"
    return Finding(own, other, "another active memory", effects, detail)


def _up_to(end: float, number: Interval) -> Interval:
    """How far a number lies below an end."""
    return Interval(end - number.estimate, end - number.high, end - number.low, number.n)


def _less(number: Interval, base: float) -> Interval:
    return Interval(number.estimate - base, number.low - base, number.high - base, number.n)


def _percent(share: float) -> str:
    return interval_text(exact(share, 0), "share", interval=False)


def _points(more: Interval) -> str:
    """A difference of shares with its interval."""
    return f"{100 * more.estimate:+.1f} points ({100 * more.low:.1f} .. {100 * more.high:.1f})"


def _mean(intervals: list[Interval]) -> Interval:
    """The mean of layers that were measured apart, with the error that independence gives."""
    known = [one for one in intervals if one.n]
    if not known:
        return exact(math.nan, 0)
    middle = statistics.fmean(one.estimate for one in known)
    half = sum(((one.high - one.low) / 2) ** 2 for one in known) ** 0.5 / len(known)
    return Interval(middle, middle - half, middle + half, sum(one.n for one in known))


def _all_cells(result: Values) -> list[LayerAgreement]:
    return [layer for layer in result.agreement if layer.cells in ("", "both")]


def _upper_share(result: Values) -> float:
    """The upper layers' share of all values."""
    layers = _all_cells(result)
    upper = layers[len(layers) - round(UPPER * len(layers)) :]
    return sum(layer.all.n for layer in upper) / max(sum(layer.all.n for layer in layers), 1)


def _steps(result: Refinement) -> tuple[LayerStep, ...]:
    return result.conventions[0].steps


CLAIMS = (  # in the paper's order
    layers_are_most_parameters,
    every_key_has_a_pattern,
    several_patterns_a_key,
    most_triggers_are_covered,
    semantic_takes_over,
    lower_triggers_end_alike,
    last_token_matters_most,
    first_token_matters_least,
    last_token_fades,
    lower_values_do_not_agree,
    upper_values_agree,
    upper_values_beat_chance,
    values_know_more_than_frequency,
    values_follow_the_next_token,
    ranks_improve,
    sure_values_are_right,
    predictive_values_are_high_up,
    predictive_values_predict,
    many_memories_are_active,
    activity_dips,
    the_dip_is_where_semantic_takes_over,
    layers_compose,
    agreement_is_on_stop_words,
    agreement_is_on_short_prefixes,
    a_third_is_settled_early,
    most_are_settled_before_the_last_layer,
    growth_is_late,
    confidence_rises,
    residual_decides,
    the_residual_wins_without_agreement,
    changes_are_compositions,
    layers_veto,
    last_changes_are_distant,
    silencing_matters,
)


def judge(study: Study) -> list[Verdict]:
    """Every claim's verdict, from the study, its untrained twin and what people said."""
    twin = results_with_judgements(study.twin) if study.twin else None
    return judge_claims(CLAIMS, results_with_judgements(study), twin)
