"""What a key waits for, without any text: tokens by their embedding, and values that wake it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.memories.folded_weights import folded_weights
from ffmem.memories.projection import TopTokens
from ffmem.models.language_model import LanguageModel


@dataclass(frozen=True)
class WakeUpLink:
    """What one memory's value does to a later memory's key, for a coefficient of one.

    `key` and `gate` are inner products of the value with the later key and gate, before the norm
    in between divides by the size of the state; the cosines say the same without lengths.
    """

    key: float
    key_cosine: float
    gate: float | None = None
    gate_cosine: float | None = None


@torch.no_grad()
def key_tokens(
    model: LanguageModel, address: Address | str, k: int = 10, side: str = "key"
) -> TopTokens:
    """The k tokens whose input embedding is nearest to a memory's key (or gate), by cosine; [1, k].

    The norm in front of the layer is folded in. It says most in the first layers, where the
    residual is still close to the embedding. `logits` are the cosines; `probabilities` are theirs
    under a softmax of the inner products.
    """
    address = Address.parse(address) if isinstance(address, str) else address
    direction = read_directions(model, address)[side]
    embedding = model.head.input_embedding.to(direction.device)[: model.vocab_size].float()
    if embedding.shape[1] != len(direction):
        raise AddressError(
            f"the embedding of {model.name} has {embedding.shape[1]} numbers per token and its "
            f"keys have {len(direction)}, so they cannot be compared"
        )
    scores = embedding @ direction
    cosines = scores / (embedding.norm(dim=1) * direction.norm()).clamp(min=1e-12)
    best = cosines.topk(min(k, len(cosines)))
    chances = scores.softmax(dim=0)[best.indices]
    return TopTokens(best.indices[None], best.values[None], chances[None])


def read_directions(model: LanguageModel, address: Address) -> dict[str, Tensor]:
    """A memory's key, and in a gated layer its gate, as directions of the residual stream."""
    weights = folded_weights(model, model.layer_of(address))
    found = {"key": weights.keys[address.index]}
    return found if weights.gates is None else {**found, "gate": weights.gates[address.index]}


@torch.no_grad()
def wake_up_link(model: LanguageModel, one: Address | str, other: Address | str) -> WakeUpLink:
    """How much the value of one memory wakes the key of a later one: v . k."""
    first, second = (
        Address.parse(each) if isinstance(each, str) else each for each in (one, other)
    )
    if second.layer <= first.layer:
        raise AddressError(
            f"{second} does not come after {first}, so it cannot be woken by it; name a memory of "
            "a later layer"
        )
    value = folded_weights(model, model.layer_of(first)).values[first.index]
    value = -value if first.sign == "-" else value
    found = [
        (float(value.to(one) @ one), float(torch.cosine_similarity(value.to(one), one, dim=0)))
        for one in read_directions(model, second).values()
    ]
    return WakeUpLink(*(number for pair in found for number in pair))
