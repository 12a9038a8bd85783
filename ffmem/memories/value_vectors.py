"""The values of a layer as pushes towards tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.memories.projection import PAPER, Lens, TopTokens, in_chunks, logits, top_tokens
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.models.unembedding import LinearNorm, linear_norm


@torch.no_grad()
def value_vectors(layer: FeedForward, indices: slice | list[int] = slice(None)) -> Tensor:
    """[memory, width]: what a coefficient of one adds to the residual stream.

    In a block that norms the layer's sum before adding it, the norm's linear part is folded in
    (its positive division changes no ranking); a residual multiplier is folded in too. Where
    neither is there this is a view of the weights. It lies on the layer's device.
    """
    values, norm = layer.values_at(indices), norm_after(layer)
    values = values if norm is None else norm.fold(values)
    return values if layer.scale == 1.0 else values.float() * layer.scale


def value_measures(layer: FeedForward, m: Tensor, measure: Callable[[Tensor], Tensor]) -> Tensor:
    """A number for every value of a layer: `measure` of the rows [memory, width], in float32.

    In a mixture of experts only those with a coefficient in m [memory] are looked at, the others
    have 0: most of its experts are not chosen.
    """
    if layer.mixture is None:
        return measure(layer.values.float())
    active = m.nonzero()[:, 0]
    found = torch.zeros(layer.memories, device=m.device)
    found[active] = measure(layer.mixture.values_at(active).float())
    return found


def norm_after(layer: FeedForward) -> LinearNorm | None:
    """The linear part of the norm that a layer's sum passes before it is added, if there is one."""
    if layer.after is None:
        return None
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(1, 4, layer.width, generator=generator)
    return linear_norm(layer.after, probe.to(layer.device, layer.dtype))


def value_tokens(
    model: LanguageModel, address: Address | str, k: int = 10, lens: Lens = PAPER
) -> TopTokens:
    """The k tokens that one memory's value promotes most (a logit lens on the value); [1, k].

    The `-` cell of a gated memory pushes against its value.
    """
    address = Address.parse(address) if isinstance(address, str) else address
    value = value_vectors(model.layer(address.layer), [model.index_of(address)])
    return top_tokens(model, -value if address.sign == "-" else value, "piece", k, lens)


@dataclass(frozen=True)
class ValueEnds:
    """Both ends of every value's ranking in a layer: tokens and logits [memory, k], best first.

    `suppressed` is what the value pushes down most, that is what its opposite promotes; each
    probability [memory] is that of the end's first token under the softmax of +value or -value.
    """

    promoted: Tensor
    promoted_logits: Tensor
    probability: Tensor
    suppressed: Tensor
    suppressed_logits: Tensor
    suppressed_probability: Tensor


@torch.no_grad()
def value_ends(model: LanguageModel, layer: FeedForward, k: int, lens: Lens = PAPER) -> ValueEnds:
    """The k tokens that each value of a layer promotes, and suppresses, most; on the CPU."""
    found: list[tuple[Tensor, ...]] = []
    values = value_vectors(layer)
    for part, scores in in_chunks(model, values, "piece", lens):
        odd = not lens.is_adaptive(model.head)  # the opposite value has the opposite scores
        opposite = -scores if odd else logits(model, -values[part], "piece", lens)
        high, low = scores.topk(k), opposite.topk(k)
        promoted, suppressed = high.indices, low.indices
        promoted[:, 0], suppressed[:, 0] = scores.argmax(dim=1), opposite.argmax(dim=1)
        certain = (high.values[:, 0] - scores.logsumexp(dim=1)).exp()
        certain_low = (low.values[:, 0] - opposite.logsumexp(dim=1)).exp()
        ends = (promoted, high.values, certain, suppressed, -low.values, certain_low)
        found.append(tuple(each.cpu() for each in ends))
    return ValueEnds(*(torch.cat(parts) for parts in zip(*found, strict=True)))
