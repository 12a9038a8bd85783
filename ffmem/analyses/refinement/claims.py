"""What the paper says of refinement, and what decides each claim."""

from __future__ import annotations

import math

from ffmem.analyses.analysis import PaperQuestion
from ffmem.analyses.claim import Effect, Finding, claim, exact, share_text
from ffmem.analyses.refinement.record import LayerStep, Refinement
from ffmem.analyses.statistics import lower_and_upper


@claim(
    "refinement",
    "about a third",
    "share",
    "more than 25 % at 5/16 of the depth, and more than of other prefixes’ tokens",
    figure="refinement-settled",
)
def a_third_is_settled_early(result: Refinement) -> Finding:
    """A third of the predictions is settled in the bottom few layers."""
    number, more = result.effects.settled_early, result.effects.settled_early_above_others
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
    number, last = result.effects.settled_before_last, _steps(result)[-1]
    effects = (Effect("settled", number, 0.5),)
    return Finding(number, last.shuffled, "other prefixes’ tokens", effects)


@claim(
    "refinement",
    "fast from layer 10 on",
    "share",
    "the mean gain per layer is larger in the upper layers by more than half a point",
    figure="refinement-settled",
)
def growth_is_late(result: Refinement) -> Finding:
    """From the middle on, predictions settle faster (gain per layer)."""
    lower, upper = lower_and_upper(_steps(result))
    early = (lower[-1].settled.estimate - lower[0].settled.estimate) / max(len(lower) - 1, 1)
    late = (upper[-1].settled.estimate - lower[-1].settled.estimate) / len(upper)
    effects = (Effect("faster in upper layers", result.effects.late_growth, 0.005),)
    prefixes = result.prefixes
    return Finding(exact(late, prefixes), exact(early, prefixes), "lower layers", effects)


@claim(
    "refinement",
    "rises",
    "share",
    "the mean probability rises by more than 1 point from the first layer to the last",
    figure="refinement-probability",
)
def confidence_rises(result: Refinement) -> Finding:
    """The residual's probability for the final token rises with depth."""
    steps = _steps(result)
    effects = (Effect("higher in the last layer", result.effects.confidence, 0.01),)
    first, last = steps[0].mean_probability, steps[-1].mean_probability
    return Finding(last, first, "first layer", effects)


@claim(
    "refinement",
    "the vast majority",
    "share",
    "more than half of the prefixes in every layer after the first, the lowest of which is shown",
    figure="refinement-winners",
)
def residual_decides(result: Refinement) -> Finding:
    """In most cases a layer leaves the residual's top token in place."""
    kept = [layer.residual.estimate + layer.agreement.estimate for layer in _steps(result)]
    number = result.effects.kept
    effects = (Effect("left in place", number, 0.5),)
    detail = f"up to {share_text(max(kept))}; layer 1 {share_text(kept[0])}"
    return Finding(number, None, "", effects, detail)


@claim(
    "refinement",
    "residual far above agreement",
    "share",
    "in more than three of four such cases after layer 1 the layer alone says something else",
)
def the_residual_wins_without_agreement(result: Refinement) -> Finding:
    """Where the residual's token stays, the layer mostly did not agree with it."""
    number = result.effects.residual_of_kept
    return Finding(number, None, "", (Effect("against the layer", number, 0.75),))


@claim(
    "refinement",
    "composition far above ffn",
    "share",
    "more than three of four changes after layer 1 are to neither token",
    figure="refinement-winners",
)
def changes_are_compositions(result: Refinement) -> Finding:
    """Where the token changes, it is rarely to the layer's own."""
    number, first = result.effects.composition_of_changes, _steps(result)[0]
    changed = first.composition.estimate + first.ffn.estimate
    share = first.composition.estimate / changed if changed else math.nan
    effects = (Effect("changes to neither token", number, 0.75),)
    return Finding(number, None, "", effects, f"layer 1 {share_text(share)}")


@claim(
    "refinement",
    "a conjecture",
    "share",
    "the old token falls more than the new one rises, from the mean logit, in more than half of "
    "the changes after layer 1, and more often than with another prefix’s layer output",
    source="conjecture",
    figure="refinement-veto",
)
def layers_veto(result: Refinement) -> Finding:
    """A change is a veto: the layer pushes the old token down."""
    number, more = result.effects.veto, result.effects.veto_above_foreign
    effects = (
        Effect("more often than with another prefix’s layer output", more),
        Effect("more than half of the changes", number, 0.5),
    )
    control = result.effects.foreign_veto
    return Finding(number, control, "another prefix’s layer output", effects)


def _steps(result: Refinement) -> tuple[LayerStep, ...]:
    return result.conventions[0].steps


CLAIMS = (  # in the paper's order
    a_third_is_settled_early,
    most_are_settled_before_the_last_layer,
    growth_is_late,
    confidence_rises,
    residual_decides,
    the_residual_wins_without_agreement,
    changes_are_compositions,
    layers_veto,
)

QUESTIONS: tuple[PaperQuestion[Refinement], ...] = (
    PaperQuestion(
        "How early is the final token on top of the residual?",
        a_third_is_settled_early,
        lambda result: [layer.settled.estimate for layer in _steps(result)],
    ),
    PaperQuestion(
        "Does a layer leave the residual’s token in place?",
        residual_decides,
        lambda result: [
            layer.residual.estimate + layer.agreement.estimate for layer in _steps(result)
        ],
    ),
    PaperQuestion(
        "Where it changes the token, is the new one neither’s?",
        changes_are_compositions,
        lambda result: [layer.composition.estimate for layer in _steps(result)],
    ),
)
