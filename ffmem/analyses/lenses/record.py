"""What values say under several ways to read them, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval

PLACES = 1200  # that maps are fitted on: several of a sentence where there are fewer sentences


@dataclass(frozen=True)
class LensAgreement:
    """One layer under one lens, over cells whose strongest trigger has a next token.

    `agreement`: the value's top token is that next token. `top_10`: the next token is among its
    ten best. `median_rank` is a share of the vocabulary. Chance: next tokens of other keys.
    """

    layer: int
    lens: str
    agreement: Interval
    shuffled: Interval
    top_10: Interval
    shuffled_top_10: Interval
    median_rank: float
    shuffled_median_rank: float


@dataclass(frozen=True)
class LensFit:
    """How well an affine map turns one layer's output into the last one's, on held-out places.

    Shares of places where the state, read through the head, has the model's own top token:
    `identity` as it is (the logit lens), `learned` through the fitted map, `shuffled` through a map
    fitted to the last states of other places, which is what common tokens alone give.
    """

    layer: int
    fitted_on: int
    identity: Interval
    learned: Interval
    shuffled: Interval


@dataclass(frozen=True)
class LayerSimilarity:
    """How alike the spaces of two layers are, by linear CKA: 1 is the same up to a rotation.

    `states` are the layers' outputs at the same places, `values` the logits of the same tokens
    under some of the layers' values. Shuffled: places, or tokens, of the second layer in another
    order.
    """

    layer: int
    other: int
    states: float
    shuffled_states: float
    values: float
    shuffled_values: float


@dataclass(frozen=True)
class Lenses:
    """All layers under all lenses that differ in this model, and how alike their spaces are."""

    rows: tuple[LensAgreement, ...]
    lenses: tuple[str, ...]
    measured_memories: int
    measured_prefixes: int
    fits: tuple[LensFit, ...]
    similarity: tuple[LayerSimilarity, ...]  # of every two layers, the lower one first
