"""Keys, gates and values of a layer as directions of the residual stream, norms folded in.

A norm in front of the layer multiplies by its gain, so the direction that a key reads is gain x
key, without its mean where the norm subtracts the mean. A key and a value can be compared only
after that. So can a key and the tokens it waits for, without any text, or a value that wakes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.memories.projection import TopTokens
from ffmem.memories.value_vectors import linear_norm_of, value_vectors
from ffmem.models.experts.stand_ins import MixtureMap
from ffmem.models.feedforward import FeedForward, LinearPart
from ffmem.models.language_model import LanguageModel
from ffmem.models.unembedding import CAST_ROWS, LinearNorm


@dataclass(frozen=True)
class FoldedWeights:
    """One layer, float32 on its device: directions [memory, width], biases [memory]."""

    keys: Tensor
    key_bias: Tensor
    values: Tensor
    gates: Tensor | None = None
    gate_bias: Tensor | None = None


@torch.no_grad()
def folded_weights(model: LanguageModel, layer: FeedForward) -> FoldedWeights:
    """What the layer's memories read from the residual stream and what they add to it.

    Values lose their mean where the final norm subtracts it, because nothing downstream sees it.
    A norm between the values and the residual stream is folded in.
    """
    norm = norm_before(layer)
    keys, key_bias = _read_side(layer.key_map, norm)
    values = value_vectors(layer).detach().float()
    final = model.head.norm
    if final is not None and final.centred:
        values = values - values.mean(dim=1, keepdim=True)
    if layer.gate_map is None:
        return FoldedWeights(keys, key_bias, values)
    return FoldedWeights(keys, key_bias, values, *_read_side(layer.gate_map, norm))


def norm_before(layer: FeedForward) -> LinearNorm | None:
    """The linear part of the norm that a layer reads through, if there is one."""
    if layer.norm is None or layer.form == "post-norm":  # there the norm comes behind the layer
        return None
    return linear_norm_of(layer, layer.norm)


def _read_side(part: LinearPart | MixtureMap, norm: LinearNorm | None) -> tuple[Tensor, Tensor]:
    """The directions and biases of a map, as seen from before the norm."""
    weight = part.weight.detach().float()
    bias = torch.zeros(len(weight), device=weight.device)
    if part.bias is not None:
        bias = bias + part.bias.float()
    if norm is None:
        return weight, bias
    folded = weight * norm.gain.to(weight.device)
    if norm.centred:
        folded = folded - folded.mean(dim=1, keepdim=True)
    return folded, bias + weight @ norm.shift.to(weight.device)


def paired_cosines(one: Tensor, other: Tensor) -> Tensor:
    """The cosine of each row with the same row of the other; 0 where one has no length."""
    return torch.nn.functional.cosine_similarity(one, other, dim=1)


@torch.no_grad()
def model_cosines(
    one: LanguageModel, other: LanguageModel, layers: Iterable[int]
) -> tuple[Tensor, Tensor]:
    """[memory] over some layers of two models of one shape: cosines of keys, and of values.

    A gated memory's key has two halves; theirs is the mean.
    """
    keys, values = [], []
    for number in layers:
        mine, theirs = (folded_weights(model, model.layer(number)) for model in (one, other))
        halves = [paired_cosines(mine.keys, theirs.keys.to(mine.keys.device))]
        if mine.gates is not None and theirs.gates is not None:
            halves.append(paired_cosines(mine.gates, theirs.gates.to(mine.gates.device)))
        keys.append(torch.stack(halves).mean(dim=0).cpu())
        values.append(paired_cosines(mine.values, theirs.values.to(mine.values.device)).cpu())
    return torch.cat(keys), torch.cat(values)


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
    direction = _read_directions(model, address)[side]
    tokens = model.head.vectors("input").first(model.vocab_size)
    if tokens.width != len(direction):
        raise AddressError(
            f"the embedding of {model.name} has {tokens.width} numbers per token and its "
            f"keys have {len(direction)}, so they cannot be compared"
        )
    direction = direction.to(tokens.device)
    parts = [
        torch.stack([rows.float() @ direction, rows.float().norm(dim=1)])
        for _, rows in tokens.chunks(CAST_ROWS)
    ]
    scores, lengths = torch.cat(parts, dim=1)
    cosines = scores / (lengths * direction.norm()).clamp(min=1e-12)
    best = cosines.topk(min(k, len(cosines)))
    chances = scores.softmax(dim=0)[best.indices]
    return TopTokens(best.indices[None], best.values[None], chances[None], model.token_text)


def _read_directions(model: LanguageModel, address: Address) -> dict[str, Tensor]:
    """A memory's key, and in a gated layer its gate, as directions of the residual stream."""
    weights, index = folded_weights(model, model.layer_of(address)), model.index_of(address)
    found = {"key": weights.keys[index]}
    return found if weights.gates is None else {**found, "gate": weights.gates[index]}


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
    value = folded_weights(model, model.layer_of(first)).values[model.index_of(first)]
    value = -value if first.sign == "-" else value
    found = [
        (float(value.to(one) @ one), float(torch.cosine_similarity(value.to(one), one, dim=0)))
        for one in _read_directions(model, second).values()
    ]
    return WakeUpLink(*(number for pair in found for number in pair))


@dataclass(frozen=True)
class NearToken:
    """A token, and the cosine of its embedding with a key or gate."""

    token: str
    cosine: float


@dataclass(frozen=True)
class KeyView:
    """What a memory waits for by its weights alone: tokens near its key and gate.

    `link` is the inner product of its value with the key of another memory, where one is named.
    """

    key: tuple[NearToken, ...]
    gate: tuple[NearToken, ...]
    link: WakeUpLink | None


def key_view(model: LanguageModel, cell: Address, other: str | None, count: int = 10) -> KeyView:
    """The tokens nearest to a key, and what the value does to a later key."""

    def near(side: str) -> tuple[NearToken, ...]:
        found = key_tokens(model, cell, count, side)
        pairs = zip(found.tokens[0].tolist(), found.logits[0].tolist(), strict=True)
        return tuple(NearToken(model.token_text(token), round(c, 4)) for token, c in pairs)

    gated = model.layer_of(cell).gated
    link = None if other is None else wake_up_link(model, cell, other)
    return KeyView(near("key"), near("gate") if gated else (), link)
