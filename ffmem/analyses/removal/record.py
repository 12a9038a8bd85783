"""What removing a token does to coefficients: Figure 3 as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval

REMOVALS = ("first", "last", "random")
DECILES = 10


@dataclass(frozen=True)
class Variant:
    """Variants of the paper's measurement.

    `interior` draws the random token between the first and the last, so that the three kinds never
    remove the same one; a trigger of two tokens then has no random token. `clipped` takes a
    coefficient below 0 (smooth activations, gates) for 0: the key has fallen silent.
    """

    interior: bool = False
    clipped: bool = True


AS_PUBLISHED = Variant()


@dataclass(frozen=True)
class CoefficientChange:
    """How a coefficient changes when one token is removed, in percent of what it was.

    `mean` pools the ratios of all triggers (as the paper does), its interval resamples keys;
    `ratio_of_means` weighs triggers by their coefficient; `median` is over triggers.
    """

    mean: Interval
    ratio_of_means: float
    median: float


@dataclass(frozen=True)
class LayerRemoval:
    """One layer's changes, and all that was left out of them.

    `deciles` is the control along the prefix: the mean change by where in the prefix the randomly
    removed token stood, from its first tenth to its last.
    """

    layer: int
    first: CoefficientChange
    last: CoefficientChange
    random: CoefficientChange
    deciles: tuple[Interval, ...]
    triggers: int  # measured
    keys: int  # with at least one measured trigger
    dead: int  # drawn keys that nothing in the corpus fires
    short: int  # triggers of one token: nothing would be left
    silent: int  # triggers that do not fire when read again


@dataclass(frozen=True)
class RemovalEffects:
    """Differences between mean changes by key, in percent.

    `last_most`: how much more the last token costs than the first and than a random one, in all
    layers, in the lower and in the upper ones; `last_fades` how much less it costs above. The first
    token costs less than a random one by `first_least`, and than the last by `first_above_last`.
    """

    last_most: Interval
    last_most_lower: Interval
    last_most_upper: Interval
    last_fades: Interval
    first_least: Interval
    first_above_last: Interval


@dataclass(frozen=True)
class Removal:
    """Fig 3: the change of the coefficient by layer and by the token removed.

    `effects` are what its claims rest on, by key.
    """

    layers: tuple[LayerRemoval, ...]
    drawn: dict[int, tuple[str, ...]]  # the keys of every layer
    top: int  # triggers per key
    seed: int
    passes: int  # rows that the model read
    tokens: int  # tokens in them
    variant: Variant
    effects: RemovalEffects

    def left_out(self) -> dict[str, int]:
        """What figure 3 leaves out, under readable names."""
        return {
            "triggers of one token (figure 3)": sum(layer.short for layer in self.layers),
            "dead keys drawn (figure 3)": sum(layer.dead for layer in self.layers),
        }
