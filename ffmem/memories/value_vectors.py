"""Values of a layer (rows of W_out), and the tokens that they promote (logit lens)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ffmem.address import Address
from ffmem.errors import AddressError, ModelError, shorten
from ffmem.files.disk_cache import address_of, find, keep
from ffmem.loops.threads import map_in_threads
from ffmem.memories.projection import (
    PAPER_LENS,
    Lens,
    TopTokens,
    before_embedding,
    check_width,
    in_chunks,
    is_odd,
    logits,
    strongest,
    sums_of_exponentials,
    top_tokens,
)
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.models.unembedding import LinearNorm, TokenVectors, linear_norm
from ffmem.version import VERSION

ENDS_FILE = "ends.safetensors"
BLOCK_VALUES, BLOCK_TOKENS = 256, 4096  # whose scores are made at once, on a CPU
WAY = 5  # raised when the ends of a ranking are found in another way


@torch.no_grad()
def value_vectors(layer: FeedForward, indices: slice | list[int] = slice(None)) -> Tensor:
    """Values (rows of W_out) [memory, width]: what a coefficient of 1 adds to the residual stream.

    The linear part of a norm after the layer's sum is folded in (its positive division changes no
    ranking), and so is a residual multiplier. Without either this is a view of the weights.
    """
    if not isinstance(layer, FeedForward):
        raise ModelError(
            f"{shorten(repr(layer))} is not a layer; write value_vectors(model.layer(7), [1034]) "
            "for the value of L7.1034"
        )
    values, norm = layer.values_at(indices), norm_after(layer)
    values = values if norm is None else norm.fold(values)
    return values if layer.scale == 1.0 else values.float() * layer.scale


def added_values(layer: FeedForward, memories: list[int], coefficients: Tensor) -> Tensor:
    """Values [memory, width] in the direction in which these coefficients [memory] add them."""
    values = value_vectors(layer, memories).float()
    return torch.where(coefficients[:, None].to(values.device) < 0, -values, values)


def added_tokens(
    model: LanguageModel, layer: FeedForward, memories: list[int], coefficients: Tensor, k: int
) -> list[list[int]]:
    """The k tokens that each of those promotes most; none if the way to tokens is not linear."""
    values = added_values(layer, memories, coefficients)
    try:
        return top_tokens(model, values, "direction", k).tokens.tolist()
    except ModelError:
        return [[] for _ in memories]


def value_measures(layer: FeedForward, m: Tensor, measure: Callable[[Tensor], Tensor]) -> Tensor:
    """A number for every value of a layer: `measure` of the rows [memory, width], in float32.

    In a mixture of experts only memories with a coefficient in m [memory] are computed, and the
    others are 0: most experts are not chosen.
    """
    if layer.mixture is None:
        return measure(layer.values.float())
    active = m.nonzero()[:, 0]
    found = torch.zeros(layer.memories, device=m.device)
    found[active] = measure(layer.mixture.values_at(active).float())
    return found


def norm_after(layer: FeedForward) -> LinearNorm | None:
    """The linear part of the norm on a layer's output before it is added; None without one."""
    return None if layer.after is None else linear_norm_of(layer, layer.after)


def linear_norm_of(layer: FeedForward, module: nn.Module) -> LinearNorm | None:
    """The linear part of a norm beside a layer, asked with a fixed random state."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(1, 4, layer.width, generator=generator)
    return linear_norm(module, probe.to(layer.device, layer.dtype))


def value_tokens(
    model: LanguageModel,
    address: Address | str | Iterable[Address | str],
    k: int = 10,
    lens: Lens = PAPER_LENS,
) -> TopTokens:
    """The k tokens that a memory's value promotes most (a logit lens on the value).

    `address` is one memory or a list of memories; the result has a row for each, [memory, k]. The
    `-` cell of a gated memory pushes against its value.
    """
    check_model(model)
    several = isinstance(address, Iterable) and not isinstance(address, str)
    addresses: Iterable[Any] = address if several else [address]  # type: ignore[assignment]
    values = [_signed_value(model, each) for each in addresses]
    if not values:
        raise AddressError("there is no address; give at least one, as in L7.1034")
    return top_tokens(model, torch.cat(values), "direction", k, lens)


@dataclass(frozen=True)
class ValueToken:
    """A token, and the logit that a coefficient of 1 adds to it."""

    token: str
    logit: float


@dataclass(frozen=True)
class ValueView:
    """Both ends of one cell's ranking, best first, and the probability of the first token."""

    promoted: tuple[ValueToken, ...]
    suppressed: tuple[ValueToken, ...]
    probability: float


def value_view(model: LanguageModel, cell: Address, count: int = 20) -> ValueView:
    """The tokens that one value promotes and suppresses most, where no ranking is at hand."""
    value = _signed_value(model, cell)
    found = top_tokens(model, torch.cat([value, -value]), "direction", count)
    high, low = (
        tuple(ValueToken(text, sign * logit) for text, logit in zip(texts, logits, strict=True))
        for texts, logits, sign in zip(found.texts, found.logits.tolist(), (1, -1), strict=True)
    )
    return ValueView(high, low, float(found.probabilities[0, 0]))


def _signed_value(model: LanguageModel, address: Address | str) -> Tensor:
    """The value of one cell, [1, width], on the model's device."""
    cell = address if isinstance(address, Address) else Address.parse(address)
    value = value_vectors(model.layer(cell.layer), [model.index_of(cell)]).to(model.device)
    return -value if cell.sign == "-" else value


@dataclass(frozen=True)
class ValueEnds:
    """Both ends of every value's ranking in a layer: tokens and logits [memory, k], best first.

    `suppressed` are the tokens that the value lowers most, which its opposite promotes; each
    probability [memory] is that of the end's first token under the softmax of +value or -value.
    """

    promoted: Tensor
    promoted_logits: Tensor
    probability: Tensor
    suppressed: Tensor
    suppressed_logits: Tensor
    suppressed_probability: Tensor

    @classmethod
    def join(cls, parts: list[ValueEnds]) -> ValueEnds:
        """The ends of several groups of memories as one."""
        names = [one.name for one in fields(cls)]
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


@torch.no_grad()
def rank_in_parts(model: LanguageModel, layer: FeedForward, k: int) -> Iterator[ValueEnds]:
    """The k tokens that each value of a layer promotes, and suppresses, most; on the CPU.

    In groups of values: the logits of a whole layer are never held at once.
    """
    values = value_vectors(layer)
    if model.head.device.type == "cpu" and is_odd(model.head):
        yield from _rank_in_blocks(model, values, k)
        return
    for part, scores in in_chunks(model, values, "direction"):
        ends = _ends(model, values[part], scores, k)
        del scores  # the next part may be wanted much later
        yield ends


def _rank_in_blocks(model: LanguageModel, values: Tensor, k: int) -> Iterator[ValueEnds]:
    """The same on a CPU where logits are linear, from blocks of scores that stay in its cache."""
    vectors = model.on_device().head.vectors().first(model.vocab_size)
    size = min(BLOCK_VALUES, -(-len(values) // torch.get_num_threads()))

    @torch.no_grad()  # which every thread has to say
    def rank(some: Tensor) -> ValueEnds:
        pieces = before_embedding(model, some)
        check_width(model, pieces, vectors)
        return block_ends(pieces, vectors, k)

    yield from map_in_threads(rank, values.split(size))


def block_ends(pieces: Tensor, vectors: TokenVectors, k: int) -> ValueEnds:
    """Both ends of the inner products of pieces [value, width] with the vectors, on a CPU."""
    from ffmem.loops.ranking_ends import RankingEnds  # here: numba is slow to import

    ends = RankingEnds(len(pieces), min(k, len(vectors)))
    for scores in vectors.score_blocks(pieces, BLOCK_TOKENS):
        ends.add(scores)
    certain, certain_low = torch.from_numpy(1 / ends.sums).float().T
    return ValueEnds(
        torch.from_numpy(ends.promoted),
        torch.from_numpy(ends.high),
        certain,
        torch.from_numpy(ends.suppressed),
        torch.from_numpy(-ends.low),
        certain_low,
    )


def _ends(model: LanguageModel, values: Tensor, scores: Tensor, k: int) -> ValueEnds:
    """Both ends of the rankings of some values [value, width], from scores [value, token]."""
    high, promoted = strongest(scores, k)
    if PAPER_LENS.is_adaptive(model.head):  # the opposite value has scores of its own
        opposite = logits(model, -values, "direction")
        low, suppressed = strongest(opposite, k)
        certain = (high[:, 0] - scores.logsumexp(dim=1)).exp()
        certain_low = (low[:, 0] - opposite.logsumexp(dim=1)).exp()
    else:
        low, suppressed = strongest(scores, k, -1)
        up, down = sums_of_exponentials(scores, high[:, 0], -low[:, 0])
        certain, certain_low = 1 / up, 1 / down
    ends = (promoted, high, certain, suppressed, -low, certain_low)
    return ValueEnds(*(each.cpu() for each in ends))


def rank_once(model: LanguageModel, layers: list[int], k: int) -> Iterator[tuple[int, ValueEnds]]:
    """Yield both ends of every value's ranking, with the layer's number, in groups of values.

    They depend only on the model and the selected experts, so each layer's are cached.
    """
    where, some = model.head.device.type, model.experts or ()
    facts = (model.digest, model.vocab_size, k, where, VERSION, WAY, *some)
    for number in layers:
        address = address_of(*facts, number)
        folder = find("values", address)
        if folder is not None:
            yield number, ValueEnds(**load_file(folder / ENDS_FILE))
            continue
        parts = []
        for part in rank_in_parts(model, model.layer(number), k):
            parts.append(part)
            yield number, part
        keep_ends(address, f"layer {number} of {model.name}", ValueEnds.join(parts))


def keep_ends(address: str, about: str, ends: ValueEnds) -> None:
    """Write the ends of a layer's rankings to the cache."""
    tensors = {one.name: getattr(ends, one.name).contiguous() for one in fields(ends)}

    def write(part: Path) -> None:
        save_file(tensors, part / ENDS_FILE)

    keep("values", address, about, write)
