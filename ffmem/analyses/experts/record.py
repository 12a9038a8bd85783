"""The experts of a mixture in numbers: load, specialisation, output, agreement."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class ExpertUse:
    """One routed expert.

    `load` is the share of all scanned prefixes that it was chosen for, with `mean_weight`;
    `fire_rate` is the mean share of those on which one of its memories fires.
    `specialisation` is 0 where it is chosen as often in every part of the text and 1 where it is
    chosen in one only; `shuffled` is its mean with sentences dealt to parts at random. `output` is
    the share of the layer's sum that it adds, over all prefixes of the sample. `agreement` counts
    its cells whose value has the token after their strongest trigger on top.
    """

    layer: int
    expert: int
    load: float
    mean_weight: float
    fire_rate: float
    specialisation: float
    shuffled: float
    busiest: int  # part of the text, from 1
    output: float
    agreement: Interval


@dataclass(frozen=True)
class LayerExperts:
    """One layer's experts together.

    `effective` is how many experts with equal loads would be as uneven (exp of the loads' entropy).
    `information` is that between expert and part in bits, `shuffled` the same by chance with 95 %
    of the shuffles, `excess` the first less the second, resampling sentences. `routed` and `shared`
    are shares of the layer's sum: the part's projection on it. Agreement as in `values`, of the
    cells of routed and of shared experts, and of routed cells with shuffled next tokens.
    """

    layer: int
    experts: int
    per_place: float
    effective: float
    unused: int
    information: float
    shuffled: Interval
    excess: Interval
    routed: Interval
    shared: Interval | None
    agreement: Interval
    shared_agreement: Interval | None
    shuffled_agreement: Interval


@dataclass(frozen=True)
class Experts:
    """All mixture layers of a scan, their experts, and what they were measured on."""

    layers: tuple[LayerExperts, ...]
    experts: tuple[ExpertUse, ...]
    parts: int
    sentences: int
    prefixes: int  # of the scan
