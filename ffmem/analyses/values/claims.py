"""What the paper says of values, and what decides each claim."""

from __future__ import annotations

import statistics

from ffmem.analyses.analysis import PaperQuestion
from ffmem.analyses.claim import Effect, Finding, claim, exact, share_text, up_to
from ffmem.analyses.statistics import UPPER, Interval, difference, lower_and_upper, wilson
from ffmem.analyses.values.record import LayerAgreement, ValueGroup, Values


@claim(
    "values",
    "two thirds",
    "share",
    "feed-forward layers have more than 60 % of the numbers in the matrices of all blocks",
)
def layers_are_most_parameters(result: Values) -> Finding:
    """Feed-forward layers hold two thirds of the parameters, attention the rest."""
    share = result.feed_forward_share
    number = Interval(share, share, share, sum(layer.all.n for layer in _all_cells(result)))
    effects = (Effect("share of the parameters", number, 0.6),)
    return Finding(number, None, "", effects, alone="a fact of the shape")


@claim(
    "values",
    "near 0",
    "share",
    "less than 1 % of the five strongest triggers of the keys, over all lower layers; shown is the "
    "strongest alone",
)
def lower_values_do_not_agree(result: Values) -> Finding:
    """In lower layers a value's top token hardly ever follows its key's strongest trigger."""
    found = result.effects.agreement
    number, effects = (
        found.strongest_lower,
        (Effect("agreement below 1 %", up_to(0.01, found.lower)),),
    )
    worst = max(lower_and_upper(_all_cells(result))[0], key=lambda layer: layer.filled.estimate)
    detail = f"at most {share_text(worst.filled.estimate)} in layer {worst.layer}"
    return Finding(number, None, "", effects, detail, alone="a claim of absence")


@claim(
    "values",
    "up to 3.5 %",
    "share",
    "agreement with the five strongest triggers of the keys is higher than in the lower layers by "
    "more than half a point, and higher than with shuffled keys; shown is the strongest alone",
    figure="values-agreement",
)
def upper_values_agree(result: Values) -> Finding:
    """In upper layers a value's top token follows its key's strongest trigger."""
    found = result.effects.agreement
    upper = lower_and_upper(_all_cells(result))[1]
    best = max(upper, key=lambda layer: layer.filled.estimate)
    number = found.strongest_upper
    chance = exact(found.upper.estimate - found.above_shuffled.estimate, number.n)
    every = sum(layer.all.estimate * layer.all.n for layer in upper)
    every /= max(sum(layer.all.n for layer in upper), 1)
    effects = (
        Effect("higher than in lower layers", found.rise, 0.005),
        Effect("higher than with shuffled keys", found.above_shuffled),
    )
    return Finding(
        number,
        chance,
        "keys shuffled",
        effects,
        detail=f"lower layers {share_text(found.strongest_lower.estimate)}, at most "
        f"{share_text(best.filled.estimate)} in layer {best.layer}; of all keys, as the paper "
        f"counts, {share_text(every)}",
    )


@claim(
    "values",
    "3.5 against 0.0004 %",
    "share",
    "agreement in the upper layers is more than ten times one in the vocabulary",
)
def upper_values_beat_chance(result: Values) -> Finding:
    """Agreement in upper layers is far above a random token's."""
    found, uniform = result.effects.agreement, 1 / result.vocabulary
    effects = (Effect("ten times a random token’s", found.upper, 10 * uniform),)
    number = found.strongest_upper
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
    found, more = result.effects.agreement, result.effects.agreement.above_unigram
    chance = exact(found.upper.estimate - more.estimate, found.upper.n)
    effects = (Effect("more than frequency gives", more),)
    return Finding(found.strongest_upper, chance, "tokens of the text", effects)


@claim(
    "values",
    "not asked there",
    "share",
    "agreement in the upper layers is more than with the token just read",
    source="own",
)
def values_follow_the_next_token(result: Values) -> Finding:
    """Values promote the next token, not the one just read (which the released script takes)."""
    found, more = result.effects.agreement, result.effects.agreement.above_last_token
    chance = exact(found.upper.estimate - more.estimate, found.upper.n)
    effects = (Effect("more than with the token just read", more),)
    return Finding(found.strongest_upper, chance, "the token just read", effects)


@claim(
    "values",
    "improves with depth",
    "rank",
    "the rank in powers of two is lower by more than a quarter than in the lower layers, and than "
    "with shuffled keys",
    figure="values-ranks",
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
        Effect("better than in lower layers", result.effects.ranks.rise, 0.25),
        Effect("better than with shuffled keys", result.effects.ranks.above_shuffled, 0.25),
    )
    detail = f"median; lower layers {share_text(below.estimate)}"
    return Finding(there, chance, "keys shuffled", effects, detail)


@claim(
    "values",
    "rises",
    "share",
    "agreement in the twentieth of highest probability is more than 2 points above the lowest one, "
    "and above shuffled keys; keys without triggers do not count",
    figure="values-probability",
)
def sure_values_are_right(result: Values) -> Finding:
    """The higher a value's top-token probability, the more often it agrees."""
    first, last = result.quantile_bins[0], result.quantile_bins[-1]
    effects = (
        Effect("above the lowest twentieth", result.effects.certainty.rise, 0.02),
        Effect("above shuffled keys", result.effects.certainty.above_shuffled),
    )
    detail = f"the lowest twentieth {share_text(first.agreement.estimate)}"
    return Finding(last.agreement, last.shuffled, "keys shuffled", effects, detail, whole=True)


@claim(
    "values",
    "97 of 100",
    "share",
    "more than 10 points above the upper layers’ share of all values",
    figure="values-predictive",
)
def predictive_values_are_high_up(result: Values) -> Finding:
    """The 100 values with the highest top-token probability are in the upper layers."""
    group = result.predictive.largest
    number, base = wilson(group.upper, group.n), _upper_share(result)
    effects = (Effect("above the share of all values", _less(number, base), 0.1),)
    detail = f"layers from {result.predictive.first_upper_layer} on"
    return Finding(number, exact(base, group.n), "all values", effects, detail, whole=True)


@claim(
    "values",
    "46 of 100",
    "share",
    "more than 5 points above random values of the same layers",
    figure="values-predictive",
)
def predictive_values_predict(result: Values) -> Finding:
    """Of the 100 values with the highest top-token probability, many have an agreeing trigger."""

    def share(group: ValueGroup) -> Interval:
        return wilson(group.agreeing, group.n)

    there, chance = share(result.predictive.largest), share(result.predictive.random_same_layers)
    effects = (Effect("above random values", difference(there, chance), 0.05),)
    return Finding(there, chance, "random values, same layers", effects, whole=True)


def _less(number: Interval, base: float) -> Interval:
    return Interval(number.estimate - base, number.low - base, number.high - base, number.n)


def _all_cells(result: Values) -> list[LayerAgreement]:
    return [layer for layer in result.agreement if layer.cells in ("", "both")]


def _upper_share(result: Values) -> float:
    """The upper layers' share of all values."""
    layers = _all_cells(result)
    upper = layers[len(layers) - round(UPPER * len(layers)) :]
    return sum(layer.all.n for layer in upper) / max(sum(layer.all.n for layer in layers), 1)


CLAIMS = (  # in the paper's order
    layers_are_most_parameters,
    lower_values_do_not_agree,
    upper_values_agree,
    upper_values_beat_chance,
    values_know_more_than_frequency,
    values_follow_the_next_token,
    ranks_improve,
    sure_values_are_right,
    predictive_values_are_high_up,
    predictive_values_predict,
)

QUESTIONS: tuple[PaperQuestion[Values], ...] = (
    PaperQuestion(
        "Does a value’s top token follow its key’s trigger?",
        upper_values_agree,
        lambda result: [layer.filled.estimate for layer in _all_cells(result)],
    ),
    PaperQuestion(
        "At what rank of the vocabulary is that token?",
        ranks_improve,
        lambda result: [row.median_share for row in result.ranks if row.cells in ("", "both")],
    ),
    PaperQuestion("Are sure values right more often?", sure_values_are_right),
    PaperQuestion("Do the 100 surest values predict?", predictive_values_predict),
)
