"""Two scans memory by memory, as commands and pages show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryDrift:
    """One cell in two scans: distances from 0 (as it was) to 1, and what they come from."""

    address: str
    drift: float  # mean of those that are known
    key: float | None  # 1 - cosine of the keys, halved; None where the weights were not read
    triggers: float | None  # 1 - triggers in common; None where the texts are not the same
    value: float  # 1 - cosine of the values, or of the logits at both their ends, halved
    fires: float  # difference of the rates over their sum, by one threshold per layer
    strength: float  # the same of the mean coefficients over all prefixes
    rate_before: float
    rate_after: float
    mean_before: float
    mean_after: float
    promotes_before: tuple[str, ...]
    promotes_after: tuple[str, ...]


@dataclass(frozen=True)
class LayerDrift:
    """The mean distances of one layer's cells."""

    layer: int
    drift: float
    key: float | None
    triggers: float | None
    value: float
    fires: float
    strength: float


@dataclass(frozen=True)
class MemoryMatch:
    """A cell and the one of the other model that is triggered by the most of the same places."""

    address: str
    match: str
    score: float  # cosine of the two sets of places, rare places counting more
    control: float  # the best score that chance gives this cell
    mutual: bool  # whether each is the other's best
    promotes: tuple[str, ...]
    match_promotes: tuple[str, ...]


@dataclass(frozen=True)
class MemoryComparison:
    """Some rows of a comparison: `drifts` of one shape, or `matches` by triggers of one text."""

    first: str  # the names of the two studies
    second: str
    total: int
    start: int  # number of the first row, from 0
    layers: tuple[LayerDrift, ...]
    drifts: tuple[MemoryDrift, ...]
    matches: tuple[MemoryMatch, ...]
    share: float | None  # of memories with a match above the control's bar
    bar: float | None
