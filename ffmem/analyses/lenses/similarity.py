"""Do all layers share one space? Linear CKA (Kornblith et al., arXiv 1905.00414) of every two.

Two sets of vectors for the same things, places of a text or tokens of the vocabulary, are alike if
the same things lie near each other in both.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ffmem.analyses.controls import random_rows
from ffmem.analyses.lenses.record import LayerSimilarity
from ffmem.memories.projection import in_chunks
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel

if TYPE_CHECKING:
    from ffmem.analyses.lenses.measure import ScannedStates

COMPARED = 1000  # places, or tokens, that two layers are compared by, at most
VALUES = 256  # of each layer, at most


def similarity(
    model: LanguageModel,
    states: ScannedStates,
    layers: Collection[int],
    generator: torch.Generator,
) -> tuple[LayerSimilarity, ...]:
    """Every two of the layers, by their outputs and by what their values say of tokens."""
    numbers = sorted(layers)
    places = random_rows(len(states.outputs[numbers[0]]), COMPARED, generator)
    tokens = random_rows(model.vocab_size, COMPARED, generator)
    outputs = [inner_products(states.outputs[number][places]) for number in numbers]
    logits = [inner_products(_value_logits(model, one, tokens, generator)) for one in numbers]
    found = (*alike(outputs, generator), *alike(logits, generator))
    return tuple(
        LayerSimilarity(one, other, *(float(table[row, column]) for table in found))
        for row, one in enumerate(numbers)
        for column, other in enumerate(numbers)
        if row < column
    )


def _value_logits(
    model: LanguageModel, layer: int, tokens: Tensor, generator: torch.Generator
) -> Tensor:
    """[token, value]: the logits of some tokens under some values of a layer."""
    values = value_vectors(model.layer(layer))
    some = values[random_rows(len(values), VALUES, generator).to(values.device)]
    parts = [
        scores[:, tokens.to(scores.device)] for _, scores in in_chunks(model, some, "direction")
    ]
    return torch.cat(parts).float().cpu().T


def inner_products(vectors: Tensor) -> Tensor:
    """[thing, thing]: the inner products of centred vectors, as one vector of length 1."""
    centred = vectors.float() - vectors.float().mean(dim=0)
    products = centred @ centred.T
    return products / products.norm().clamp(min=1e-30)


def alike(products: list[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """[layer, layer]: the linear CKA of every two, and with the second one's things shuffled."""
    order = torch.randperm(len(products[0]), generator=generator)
    own = torch.stack([one.flatten() for one in products])
    other = torch.stack([one[order][:, order].flatten() for one in products])
    return own @ own.T, own @ other.T
