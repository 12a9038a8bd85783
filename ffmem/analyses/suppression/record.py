"""Right memories that their layers overruled, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class LayerSuppression:
    """One layer over the prefixes that a token follows.

    `fired`: a right memory is active. `overruled`: one is, and the layer's top token is another.
    `by_chance`: the same as `overruled` with the token that follows another prefix as the right
    one.
    """

    layer: int
    fired: Interval
    overruled: Interval
    by_chance: Interval


@dataclass(frozen=True)
class Suppression:
    """All layers; `lost` is the share of the model's wrong answers with a right memory somewhere.

    `lost_by_chance` is the same for tokens that follow other prefixes.
    """

    layers: tuple[LayerSuppression, ...]
    lost: Interval
    lost_by_chance: Interval
    prefixes: int
