"""What the paper says of removing tokens, and what decides each claim."""

from __future__ import annotations

from ffmem.analyses.analysis import PaperQuestion
from ffmem.analyses.claim import Effect, Finding, claim
from ffmem.analyses.removal.record import Removal
from ffmem.analyses.statistics import lower_and_upper, mean_of_layers


@claim(
    "removal",
    "most in every layer",
    "change",
    "the mean change is lower by more than 5 points than without the first and without a random "
    "token, and lower in the lower and in the upper layers",
    figure="removal",
)
def last_token_matters_most(result: Removal) -> Finding:
    """A key needs the end of its trigger: removing the last token costs most."""
    measured = [layer for layer in result.layers if layer.triggers]
    most = [
        layer
        for layer in measured
        if layer.last.estimate < min(layer.first.estimate, layer.random.estimate)
    ]
    effects = (
        Effect("last token costs more", result.effects.last_most, 5),
        Effect("more in lower layers", result.effects.last_most_lower),
        Effect("more in upper layers", result.effects.last_most_upper),
    )
    return Finding(
        mean_of_layers([layer.last for layer in measured]),
        mean_of_layers([layer.first for layer in measured]),
        "first token",
        effects,
        detail=f"in {len(most)} of {len(measured)} layers",
    )


@claim(
    "removal",
    "shrinks",
    "change",
    "the mean change in the upper layers is smaller by more than 5 points",
    figure="removal",
)
def last_token_fades(result: Removal) -> Finding:
    """The last token matters less in upper layers."""
    lower, upper = lower_and_upper([layer for layer in result.layers if layer.triggers])
    below, there = (mean_of_layers([layer.last for layer in part]) for part in (lower, upper))
    effects = (Effect("smaller in upper layers", result.effects.last_fades, 5),)
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
        Effect("first token costs less than a random one", result.effects.first_least, 1),
        Effect("less than the last", result.effects.first_above_last),
    )
    first, random = ([getattr(layer, name) for layer in measured] for name in ("first", "random"))
    return Finding(mean_of_layers(first), mean_of_layers(random), "random token", effects)


CLAIMS = (  # in the paper's order
    last_token_matters_most,
    first_token_matters_least,
    last_token_fades,
)

QUESTIONS: tuple[PaperQuestion[Removal], ...] = (
    PaperQuestion(
        "Does a key need its trigger’s last token? (change without it)",
        last_token_matters_most,
        lambda result: [layer.last.estimate for layer in result.layers],
    ),
)
