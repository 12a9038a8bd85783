"""Right memories that their layers overruled, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class LayerSuppression:
    """One layer over the prefixes that a token follows.

    `fired`: a right memory is active. `overruled`: one is, and the layer's top token is another.
    `by_chance`: the same as `overruled` with the token that follows another prefix as the right
    one. `difference` is of the two, prefix by prefix, with an interval that resamples sentences.
    """

    layer: int
    fired: Interval
    overruled: Interval
    by_chance: Interval
    difference: Interval


@dataclass(frozen=True)
class SuppressionCase:
    """A right memory that its layer overruled, at a prefix where the model said another token."""

    memory: Address
    prefix: str
    right: str
    layer_said: str
    model_said: str


@dataclass(frozen=True)
class Suppression:
    """All layers; `lost` is the share of the model's wrong answers with a right memory somewhere.

    `lost_by_chance` is the same for tokens that follow other prefixes. Examples have the strongest
    right memory of the last layer that has one, and are in the order of the sample.
    """

    layers: tuple[LayerSuppression, ...]
    lost: Interval
    lost_by_chance: Interval
    examples: tuple[SuppressionCase, ...]
    prefixes: int
