"""Every memory's weights in numbers: what layers and single memories stand out by."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.address import Address


@dataclass(frozen=True)
class PairCosines:
    """Cosines of one pair of a layer's weights, and of mismatched pairs.

    `low` and `high` hold 95 % of the mismatched ones; `outside` is the share of memories beyond.
    """

    quantiles: tuple[float, ...]  # at 5, 25, 50, 75 and 95 %
    low: float
    high: float
    outside: float


@dataclass(frozen=True)
class LayerWeights:
    """One layer in numbers; what begins with `mismatched` or `control` is the control beside it.

    `prediction` and `suppression` have logits with a kurtosis above 10 and a positive or negative
    skew; `entropy` and `frequency` stand out of their layer; `duplicates` have a twin.
    """

    layer: int
    memories: int
    classes: dict[str, int]
    mismatched_classes: dict[str, float]
    cosines: dict[str, PairCosines]
    key_norm: tuple[float, ...]
    value_norm: tuple[float, ...]
    prediction: int
    suppression: int
    entropy: int
    control_entropy: int
    frequency: int
    duplicates: int


@dataclass(frozen=True)
class Candidate:
    """A memory that stands out, and the number by which it does."""

    address: Address
    score: float


@dataclass(frozen=True)
class Weights:
    """The weights of a model in numbers: its layers, and the memories that stand out most."""

    layers: tuple[LayerWeights, ...]
    frequency_from: str
    random_peaked: float
    entropy: tuple[Candidate, ...]
    frequency: tuple[Candidate, ...]
    duplicates: tuple[Candidate, ...]
