"""What changes when memories are silenced or forced, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.address import Address
from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class NextTokenEffect:
    """The effect of a change on the next-token distribution, mean over memories.

    `value_probability` is the change in the summed probability of the value's top tokens,
    `value_log_probability` that in their mean log-probability, `next_probability` that in the
    probability of the token that really follows, and `kl` the divergence in nats, KL(before ||
    after). Intervals resample memories.
    """

    value_probability: Interval
    value_log_probability: Interval
    next_probability: Interval
    kl: Interval


@dataclass(frozen=True)
class MemoryEffect:
    """One memory silenced at its triggers: the mean divergence in nats, and that of its control."""

    address: Address
    kl: float
    other_kl: float


@dataclass(frozen=True)
class LayerCausal:
    """One layer's sampled memories.

    `silenced`: coefficient set to zero at the end of the memory's triggers. Its controls:
    `other_silenced`, the memory of the layer that adds a vector most nearly as long (|m| ||v||) at
    the same place; `silenced_elsewhere`, the same memory at the end of random prefixes of the same
    length that do not fire it. `forced`: set to its largest coefficient of the scan at the end of
    those prefixes. `unrelated`: silenced at every token of random text, the damage done elsewhere.
    `lost_more` is by how much the mean log-probability of the value's tokens
    is higher with the other memory silent than with the memory itself, paired by place.
    """

    layer: int
    memories: int
    triggers: int
    silenced: NextTokenEffect
    other_silenced: NextTokenEffect
    silenced_elsewhere: NextTokenEffect
    forced: NextTokenEffect
    unrelated: NextTokenEffect
    by_memory: tuple[MemoryEffect, ...]
    lost_more: Interval


@dataclass(frozen=True)
class Causal:
    """The causal check of every layer; `tokens` top tokens of a value are watched."""

    layers: tuple[LayerCausal, ...]
    tokens: int
