"""The paper's claims, in its order: each docstring is one, each body decides it.

The paper's numbers are from its prose, never read off a figure.
"""

from __future__ import annotations

import statistics

from ffmem.analyses.causal import Causal
from ffmem.analyses.composition import Composition
from ffmem.analyses.last_layer import LastLayer
from ffmem.analyses.predictive_values import ValueGroup
from ffmem.analyses.refinement import LayerStep, Refinement
from ffmem.analyses.removal import Removal
from ffmem.analyses.statistics import Interval, wilson
from ffmem.analyses.values import LayerAgreement, LayerRanks, Values
from ffmem.patterns.analysis import PatternResults
from ffmem.report.verdicts import Finding, above, claim, exact, lower_and_upper, pool_layers


@claim(
    "patterns",
    "all of 160 keys",
    "share",
    "at least 95 % of the keys, and at most 10 % of the control keys, have one",
)
def every_key_has_a_pattern(result: PatternResults) -> Finding:
    """Every key has a pattern that people can see in its triggers."""
    found, control = result.summary.overall.with_pattern, _false_patterns(result)
    return Finding(
        found,
        control,
        "control keys with a pattern",
        holds=found.estimate >= 0.95 and control.estimate <= 0.1,
        detail=f"by annotator ‘{result.summary.annotator}’",
    )


@claim(
    "patterns",
    "3.6",
    "number",
    "the interval lies above 1, and at most 10 % of the control keys have a pattern",
)
def several_patterns_a_key(result: PatternResults) -> Finding:
    """A key has several patterns."""
    found = result.summary.overall.patterns_per_key
    control = _false_patterns(result)
    return Finding(found, None, "", holds=found.low > 1 and control.estimate <= 0.1)


@claim(
    "patterns",
    "65 to 80 %",
    "share",
    "at least 65 % are, and more than of the control keys’ prefixes",
)
def most_triggers_are_covered(result: PatternResults) -> Finding:
    """Most triggers are covered by a pattern."""
    found = result.summary.overall.covered
    covered = [control.covered for control in result.controls]
    control = exact(max(covered), sum(control.false_patterns.n for control in result.controls))
    layers = [layer.covered.estimate for layer in result.summary.layers]
    return Finding(
        found,
        control,
        "prefixes of control keys",
        holds=found.estimate >= 0.65 and found.low > control.estimate,
        detail=f"{100 * min(layers):.0f} to {100 * max(layers):.0f} % by layer",
    )


@claim(
    "patterns",
    "from layer 10 of 16 on",
    "share",
    "from some layer on, semantic triggers outnumber shallow ones everywhere",
)
def semantic_takes_over(result: PatternResults) -> Finding:
    """Lower layers are shallow, upper layers semantic."""
    layers = result.summary.layers
    found, last = result.summary.crossover, layers[-1]
    control, semantic = last.shares["shallow"], last.shares["semantic"]
    detail = "nowhere" if found is None else f"from layer {found} of {len(layers)} on"
    return Finding(semantic, control, "shallow only, last layer", found is not None, detail)


def _false_patterns(result: PatternResults) -> Interval:
    """Of the kinds of control keys, the one that was taken in most often."""
    return max((c.false_patterns for c in result.controls), key=lambda found: found.estimate)


@claim(
    "removal",
    "most in every layer",
    "change",
    "the mean change is lowest for the last token in every layer",
)
def last_token_matters_most(result: Removal) -> Finding:
    """A key needs the end of its trigger: removing the last token costs most."""
    measured = [layer for layer in result.layers if layer.triggers]
    most = [
        layer
        for layer in measured
        if layer.last.mean.estimate < min(layer.first.mean.estimate, layer.random.mean.estimate)
    ]
    return Finding(
        _mean([layer.last.mean for layer in measured]),
        _mean([layer.first.mean for layer in measured]),
        "first token",
        holds=len(most) == len(measured) > 0,
        detail=f"in {len(most)} of {len(measured)} layers",
    )


@claim(
    "removal",
    "shrinks",
    "change",
    "the upper layers’ interval lies above the lower layers’",
)
def last_token_fades(result: Removal) -> Finding:
    """The last token matters less in upper layers."""
    lower, upper = lower_and_upper([layer for layer in result.layers if layer.triggers])
    below, there = (_mean([layer.last.mean for layer in part]) for part in (lower, upper))
    return Finding(there, below, "lower layers", holds=above(there, below))


@claim(
    "values",
    "near 0, then up to 3.5 %",
    "share",
    "the upper layers’ interval lies above the lower layers’ and above shuffled keys’",
)
def upper_values_agree(result: Values) -> Finding:
    """In upper layers a value's top token follows its key's strongest trigger."""
    lower, upper = lower_and_upper(_of_all_cells(result.agreement))
    there, below = (pool_layers([layer.all for layer in part]) for part in (upper, lower))
    chance = pool_layers([layer.shuffled for layer in upper])
    best = max(upper, key=lambda layer: layer.all.estimate)
    return Finding(
        there,
        chance,
        "keys shuffled",
        holds=above(there, below) and above(there, chance),
        detail=f"lower layers {100 * below.estimate:.2f} %, at most "
        f"{100 * best.all.estimate:.2f} % in layer {best.layer}",
    )


@claim(
    "values",
    "improves with depth",
    "rank",
    "the median rank is lower than in the lower layers and lower than with shuffled keys",
)
def ranks_improve(result: Values) -> Finding:
    """The next token ranks higher under values of upper layers."""
    lower, upper = lower_and_upper(_of_all_ranks(result.ranks))
    there, below, chance = (
        exact(statistics.median(values) / result.vocabulary, sum(layer.n for layer in part))
        for part, values in (
            (upper, [layer.quantiles[2] for layer in upper]),
            (lower, [layer.quantiles[2] for layer in lower]),
            (upper, [layer.shuffled_quantiles[2] for layer in upper]),
        )
    )
    return Finding(
        there,
        chance,
        "keys shuffled",
        holds=there.estimate < below.estimate and there.estimate < chance.estimate,
        detail=f"lower layers {100 * below.estimate:.2f} %",
    )


@claim(
    "values",
    "rises to nearly all",
    "share",
    "the twentieth of highest probability lies above the lowest one and above shuffled keys",
)
def sure_values_are_right(result: Values) -> Finding:
    """The higher a value's top-token probability, the more often it agrees."""
    first, last = result.quantile_bins[0], result.quantile_bins[-1]
    return Finding(
        last.agreement,
        last.shuffled,
        "keys shuffled",
        holds=above(last.agreement, first.agreement) and above(last.agreement, last.shuffled),
        detail=f"the lowest twentieth {100 * first.agreement.estimate:.2f} %",
    )


@claim(
    "values",
    "97 of 100",
    "share",
    "the interval lies above that of random values",
)
def predictive_values_are_high_up(result: Values) -> Finding:
    """The 100 values with the highest top-token probability are in the upper layers."""
    found, control = result.predictive.largest, result.predictive.random
    there, chance = wilson(found.upper, found.n), wilson(control.upper, control.n)
    detail = f"layers from {result.predictive.first_upper_layer} on"
    return Finding(there, chance, "random values", above(there, chance), detail)


@claim(
    "values",
    "46 of 100",
    "share",
    "the interval lies above that of random values of the same layers",
)
def predictive_values_predict(result: Values) -> Finding:
    """Of the 100 values with the highest top-token probability, many have an agreeing trigger."""

    def share(group: ValueGroup) -> Interval:
        return wilson(group.agreeing, group.n)

    there, chance = share(result.predictive.largest), share(result.predictive.random_same_layers)
    return Finding(there, chance, "random values, same layers", above(there, chance))


@claim(
    "composition",
    "10 to 50 % of a layer",
    "share",
    "the mean share is between 10 and 50 % in every layer",
)
def many_memories_are_active(result: Composition) -> Finding:
    """Hundreds of memories are active for a prefix."""
    active = [layer.mean_active / layer.memories for layer in result.activity]
    found = exact(statistics.fmean(active), result.prefixes)
    return Finding(
        found,
        None,
        "",
        holds=min(active) >= 0.1 and max(active) <= 0.5,
        detail=f"{100 * min(active):.0f} to {100 * max(active):.0f} % by layer",
    )


@claim(
    "composition",
    "dip at layer 10 of 16",
    "share",
    "the lowest layer is neither the first nor the last",
)
def activity_dips(result: Composition) -> Finding:
    """Fewest memories are active in the middle."""
    layers = result.activity
    lowest = min(layers, key=lambda layer: layer.mean_active / layer.memories)
    inside = layers[0].layer < lowest.layer < layers[-1].layer
    return Finding(
        exact(lowest.mean_active / lowest.memories, result.prefixes),
        exact(layers[0].mean_active / layers[0].memories, result.prefixes),
        "first layer",
        holds=inside,
        detail=f"lowest in layer {lowest.layer} of {len(layers)}",
    )


@claim(
    "composition",
    "at least 68 % in every layer",
    "share",
    "at least 68 % of the prefixes in every layer; the lowest layer is shown",
)
def layers_compose(result: Composition) -> Finding:
    """A layer mostly says what none of its memories says."""
    lowest = min(result.zero_agreement, key=lambda layer: layer.all.estimate)
    return Finding(
        lowest.all,
        lowest.random_values,
        "random directions as values",
        holds=lowest.all.estimate >= 0.68,
        detail=f"lowest in layer {lowest.layer}",
    )


@claim(
    "composition",
    "60 %",
    "share",
    "the interval lies above the base rate’s",
)
def agreement_is_on_stop_words(result: Composition) -> Finding:
    """Where a memory agrees with its layer, the token is often a stop word."""
    cases = result.agreeing[0]
    there, base = cases.stop_word, cases.stop_word_base
    return Finding(there, base, "all cases", above(there, base))


@claim(
    "composition",
    "43 %",
    "share",
    "the interval lies above the base rate’s",
)
def agreement_is_on_short_prefixes(result: Composition) -> Finding:
    """Where a memory agrees with its layer, the prefix is often short."""
    cases = result.agreeing[0]
    return Finding(cases.short, cases.short_base, "all cases", above(cases.short, cases.short_base))


@claim(
    "refinement",
    "about a third",
    "share",
    "at least 25 % at a third of the depth, and above other prefixes’ tokens",
)
def a_third_is_settled_early(result: Refinement) -> Finding:
    """A third of the predictions is settled in the bottom few layers."""
    steps = _steps(result)
    few = steps[max(0, round(len(steps) * 5 / 16) - 1)]
    return Finding(
        few.settled,
        few.shuffled,
        "other prefixes' tokens",
        holds=few.settled.estimate >= 0.25 and above(few.settled, few.shuffled),
        detail=f"at layer {few.layer} of {len(steps)}",
    )


@claim(
    "refinement",
    "fast from layer 10 on",
    "share",
    "the mean gain per layer is larger in the upper layers",
)
def growth_is_late(result: Refinement) -> Finding:
    """From the middle on, predictions settle faster (gain per layer)."""
    lower, upper = lower_and_upper(_steps(result))
    early = (lower[-1].settled.estimate - lower[0].settled.estimate) / max(len(lower) - 1, 1)
    late = (upper[-1].settled.estimate - lower[-1].settled.estimate) / len(upper)
    prefixes = upper[-1].settled.n
    return Finding(exact(late, prefixes), exact(early, prefixes), "lower layers", late > early)


@claim(
    "refinement",
    "rises",
    "share",
    "the last layer’s interval lies above the first layer’s",
)
def confidence_rises(result: Refinement) -> Finding:
    """The residual's probability for the final token rises with depth."""
    steps = _steps(result)
    first, last = steps[0].mean_probability, steps[-1].mean_probability
    return Finding(last, first, "first layer", above(last, first))


@claim(
    "refinement",
    "the vast majority",
    "share",
    "more than half of the prefixes in every layer",
)
def residual_decides(result: Refinement) -> Finding:
    """In most cases a layer leaves the residual's top token in place."""
    kept = [layer.residual.estimate + layer.agreement.estimate for layer in _steps(result)]
    prefixes = _steps(result)[0].residual.n
    return Finding(
        exact(statistics.fmean(kept), prefixes),
        None,
        "",
        holds=min(kept) > 0.5,
        detail=f"{100 * min(kept):.0f} to {100 * max(kept):.0f} % by layer",
    )


@claim(
    "refinement",
    "composition far above ffn",
    "share",
    "the share of changes to neither token lies above one half",
)
def changes_are_compositions(result: Refinement) -> Finding:
    """Where the token changes, it is rarely to the layer's own."""
    steps = _steps(result)
    composed = sum(layer.composition.estimate * layer.composition.n for layer in steps)
    taken = sum(layer.ffn.estimate * layer.ffn.n for layer in steps)
    found = wilson(round(composed), round(composed + taken))
    return Finding(found, None, "", holds=found.low > 0.5)


@claim(
    "refinement",
    "a conjecture",
    "share",
    "more often than it pushes down tokens that stay on top",
)
def layers_veto(result: Refinement) -> Finding:
    """A change is a veto: the layer pushes the old token down."""
    layers = result.conventions[0].veto
    changed = pool_layers([layer.old_pushed_down for layer in layers])
    same = pool_layers([layer.unchanged_pushed_down for layer in layers])
    return Finding(changed, same, "tokens that stay on top", above(changed, same))


@claim(
    "last-layer",
    "34 of 100 related, by people",
    "share",
    "less than half are related",
)
def last_changes_are_distant(result: LastLayer) -> Finding:
    """Most changes in the last layer go to an unrelated token (related by rule)."""
    found = result.related
    return Finding(found, result.shuffled, "shuffled pairs", found.high < 0.5)


@claim(
    "causal",
    "not tested there",
    "number",
    "the change is below zero and below that of another active memory",
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
    detail = f"more than another memory in {worse} of {len(result.layers)} layers"
    holds = own.high < 0 and own.estimate < other.low
    return Finding(own, other, "another active memory", holds, detail)


def _mean(intervals: list[Interval]) -> Interval:
    """The mean of layers that were measured apart, with the error that independence gives."""
    known = [one for one in intervals if one.n]
    if not known:
        return exact(float("nan"), 0)
    middle = statistics.fmean(one.estimate for one in known)
    half = sum(((one.high - one.low) / 2) ** 2 for one in known) ** 0.5 / len(known)
    return Interval(middle, middle - half, middle + half, sum(one.n for one in known))


def _of_all_cells(layers: tuple[LayerAgreement, ...]) -> list[LayerAgreement]:
    return [layer for layer in layers if layer.cells in ("", "both")]


def _of_all_ranks(layers: tuple[LayerRanks, ...]) -> list[LayerRanks]:
    return [layer for layer in layers if layer.cells in ("", "both")]


def _steps(result: Refinement) -> tuple[LayerStep, ...]:
    return result.conventions[0].steps


CLAIMS = (  # in the paper's order
    every_key_has_a_pattern,
    several_patterns_a_key,
    most_triggers_are_covered,
    semantic_takes_over,
    last_token_matters_most,
    last_token_fades,
    upper_values_agree,
    ranks_improve,
    sure_values_are_right,
    predictive_values_are_high_up,
    predictive_values_predict,
    many_memories_are_active,
    activity_dips,
    layers_compose,
    agreement_is_on_stop_words,
    agreement_is_on_short_prefixes,
    a_third_is_settled_early,
    growth_is_late,
    confidence_rises,
    residual_decides,
    changes_are_compositions,
    layers_veto,
    last_changes_are_distant,
    silencing_matters,
)
