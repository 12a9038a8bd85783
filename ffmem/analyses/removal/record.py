"""What removing a token does to coefficients: Figure 3 as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval

REMOVALS = ("first", "last", "random")


@dataclass(frozen=True)
class LayerRemoval:
    """One layer's changes, in percent of the coefficient, and all that was left out of them.

    A change is the mean over all triggers (as in the paper); its interval resamples keys.
    """

    layer: int
    first: Interval
    last: Interval
    random: Interval
    triggers: int  # measured
    keys: int  # with at least one measured trigger
    dead: int  # drawn keys that nothing in the corpus fires
    short: int  # triggers of one token: nothing would be left


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
    effects: RemovalEffects

    def left_out(self) -> dict[str, int]:
        """What figure 3 leaves out, under readable names."""
        return {
            "triggers of one token (figure 3)": sum(layer.short for layer in self.layers),
            "dead keys drawn (figure 3)": sum(layer.dead for layer in self.layers),
        }
