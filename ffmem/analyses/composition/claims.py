"""What the paper says of composition, and what decides each claim."""

from __future__ import annotations

import statistics

from ffmem.analyses.analysis import PaperQuestion
from ffmem.analyses.claim import Effect, Finding, claim, exact, joint_claim, points_text, share_text
from ffmem.analyses.composition.record import Composition
from ffmem.analyses.patterns.claims import semantic_takes_over


@claim(
    "composition",
    "10 to 50 % of a layer",
    "share",
    "the mean share is between 10 and 50 % in every layer",
    figure="composition-active",
)
def many_memories_are_active(result: Composition) -> Finding:
    """Hundreds of memories are active for a prefix."""
    active = [layer.mean_active / layer.memories for layer in result.activity]
    effects = (Effect("within 10 and 50 % everywhere", result.effects.activity.in_range),)
    return Finding(
        exact(statistics.fmean(active), result.prefixes),
        None,
        "",
        effects,
        detail=f"{share_text(min(active))} to {share_text(max(active))} by layer",
    )


@claim(
    "composition",
    "dip at layer 10 of 16",
    "share",
    "at 9/16 to 11/16 of the depth a layer lies below all others but the first, the two before it "
    "fall to it and the two after it rise from it",
    figure="composition-active",
)
def activity_dips(result: Composition) -> Finding:
    """Activity dips where the paper's does, at 10/16 of the depth."""
    layers = result.activity
    lowest = min(layers[1:] or layers, key=lambda layer: layer.mean_active / layer.memories)
    effects = (Effect("a dip", result.effects.activity.dip),)
    detail = f"lowest after layer 1 in layer {lowest.layer} of {len(layers)}"
    number = exact(lowest.mean_active / lowest.memories, result.prefixes)
    first = exact(layers[0].mean_active / layers[0].memories, result.prefixes)
    return Finding(number, first, "first layer", effects, detail)


@claim(
    "composition",
    "at least 68 % in every layer",
    "share",
    "more than 68 % of the prefixes in every layer; the lowest layer is shown",
    figure="composition-zero-agreement",
)
def layers_compose(result: Composition) -> Finding:
    """A layer mostly says what none of its memories says."""
    lowest = min(result.zero_agreement, key=lambda layer: layer.all.estimate)
    effects = (Effect("zero agreement", result.effects.composed, 0.68),)
    detail = f"lowest in layer {lowest.layer}"
    control = "random directions as values"
    return Finding(lowest.all, lowest.random_values, control, effects, detail)


@claim(
    "composition",
    "60 %",
    "share",
    "more than 5 points more often than in all cases of the same layer",
    figure="composition-cases",
)
def agreement_is_on_stop_words(result: Composition) -> Finding:
    """Where a memory agrees with its layer, the token is often a stop word."""
    cases, more = result.agreeing, result.effects.cases.stop_words
    effects = (Effect("more often than in the same layer", more, 0.05),)
    detail = f"within layers {points_text(more)}"
    return Finding(cases.stop_word, cases.stop_word_base, "all cases", effects, detail)


@claim(
    "composition",
    "43 %",
    "share",
    "more than 5 points more often than in all cases of the same layer",
    figure="composition-cases",
)
def agreement_is_on_short_prefixes(result: Composition) -> Finding:
    """Where a memory agrees with its layer, the prefix is often short."""
    cases, more = result.agreeing, result.effects.cases.short_prefixes
    effects = (Effect("more often than in the same layer", more, 0.05),)
    detail = f"within layers {points_text(more)}"
    return Finding(cases.short, cases.short_base, "all cases", effects, detail)


@joint_claim(
    activity_dips,
    semantic_takes_over,
    "both at layer 10 of 16",
    "share",
    "activity dips there, shallow triggers lead below and semantic ones from there on",
)
def the_dip_is_where_semantic_takes_over(dip: Finding, takeover: Finding) -> Finding:
    """Activity dips where semantic patterns take over."""
    effects, detail = (*dip.effects, *takeover.effects), f"{dip.detail}; semantic {takeover.detail}"
    denied = dip.effects[0].found.high <= 0  # that alone is enough to deny both
    reason, awaits = ("", "") if denied else (takeover.reason, takeover.awaits)
    return Finding(dip.number, None, "", effects, detail, reason, awaits=awaits)


CLAIMS = (  # in the paper's order
    many_memories_are_active,
    activity_dips,
    the_dip_is_where_semantic_takes_over,
    layers_compose,
    agreement_is_on_stop_words,
    agreement_is_on_short_prefixes,
)

QUESTIONS: tuple[PaperQuestion[Composition], ...] = (
    PaperQuestion(
        "How many memories of a layer are active for a prefix?",
        many_memories_are_active,
        lambda result: [layer.mean_active / layer.memories for layer in result.activity],
    ),
    PaperQuestion(
        "Does a layer say what none of its memories says?",
        layers_compose,
        lambda result: [layer.all.estimate for layer in result.zero_agreement],
    ),
)
