"""Each layer at the places of a sample as equation 2 of the paper would have it.

The softmax of the scores stands where the activation function stands: a plain layer's coefficient
is softmax(a), a gated layer's softmax(a) u. Neither side has the bias of the values, as in the
paper's equations. A mixture of experts has no such layer: its router has chosen among the keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.memories.projection import best, logits
from ffmem.memories.recording import LayerRecord
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel


@dataclass(frozen=True)
class NormalisedLayers:
    """Layers with a softmax beside the model's own, each [prefix, layer]; NaN where not measured.

    `effective` memories carry the weight: (sum c)^2 / sum c^2 with c = |coefficient| ||value||.
    `cosine` is that of the two sums of values, `length` the ratio of their lengths, and `same_top`
    is 1 where both have one top token. `foreign` ones compare with the own sum at another prefix.
    """

    effective: Tensor
    cosine: Tensor
    foreign_cosine: Tensor
    same_top: Tensor
    foreign_same_top: Tensor
    length: Tensor


@torch.no_grad()
def normalised_layer(
    model: LanguageModel, reading: LayerRecord, lengths: Tensor, elsewhere: Tensor
) -> dict[str, Tensor]:
    """The fields of NormalisedLayers for one layer at some places, each [row].

    `reading` has a, u and m; `lengths` [memory] are those of the values. The other prefix is that
    of the row `elsewhere` [row]; there is none where that is the own one.
    """
    layer, rows = reading.layer, len(reading.m)
    if layer.mixture is not None:
        return missing_fields(model, reading, lengths, elsewhere)
    weights = reading.a.float().softmax(dim=1)
    if reading.u is not None:
        weights = weights * reading.u.float()
    values = value_vectors(layer).float()
    own, other = reading.m.float() @ values, weights @ values
    top, its = (best(logits(model, sums, "direction")).to(own.device) for sums in (own, other))
    strength = weights.abs() * lengths
    elsewhere = elsewhere.to(own.device)
    alone = elsewhere == torch.arange(rows, device=own.device)
    foreign = torch.cosine_similarity(other, own[elsewhere], dim=1).masked_fill(alone, math.nan)
    return {
        "effective": strength.sum(dim=1).square() / strength.square().sum(dim=1).clamp(min=1e-30),
        "cosine": torch.cosine_similarity(other, own, dim=1),
        "foreign_cosine": foreign,
        "same_top": (its == top).float(),
        "foreign_same_top": (its == top[elsewhere]).float().masked_fill(alone, math.nan),
        "length": other.norm(dim=1) / own.norm(dim=1).clamp(min=1e-30),
    }


def missing_fields(
    _model: LanguageModel, reading: LayerRecord, _lengths: Tensor, _elsewhere: Tensor
) -> dict[str, Tensor]:
    """The same of a layer that is not measured."""
    missing = torch.full((len(reading.m),), math.nan, device=reading.m.device)
    return dict.fromkeys(NormalisedLayers.__dataclass_fields__, missing)
