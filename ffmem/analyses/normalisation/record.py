"""What a softmax over the keys would make of each layer, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class LayerNormalisation:
    """One layer with its activation function, and with a softmax instead (equation 2).

    `effective` and `own_effective` are quantiles at 5, 25, 50, 75, 95 % of the number of memories
    that carry the weight, with the softmax and as it is: (sum c)^2 / sum c^2 for c = |coefficient|
    x length of the value. `cosine` is that of the two layers' outputs, `same_top` the share of
    prefixes at which they have one top token; `shuffled` ones compare with the layer's output at
    another prefix. `length` has quantiles of the ratio of the outputs' lengths.
    """

    layer: int
    memories: int
    effective: tuple[float, ...]
    own_effective: tuple[float, ...]
    cosine: Interval
    shuffled_cosine: Interval
    same_top: Interval
    shuffled_same_top: Interval
    length: tuple[float, ...]


@dataclass(frozen=True)
class Normalisation:
    """All layers but mixtures of experts, whose `left_out` routers choose among the keys."""

    layers: tuple[LayerNormalisation, ...]
    left_out: int
    prefixes: int
