"""Direct logit attribution: a term of one token's logit for every memory, summing to the logit.

The last state is the first one plus what attention and feed-forward layers have added, and the way
from it to a logit is linear once the final norm divides by the number that it did divide by; so is
the way through the norms around the sums of a post-norm block. So a logit is a sum, with a term for
every memory: coefficient x value, seen along one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Literal

import torch
from torch import Tensor, nn

from ffmem.address import Address, Parts
from ffmem.errors import AddressError, ModelError
from ffmem.memories.projection import logits
from ffmem.memories.prompt_explanation import PromptExplanation, cell_address
from ffmem.memories.recording import LayerRecord, Records
from ffmem.memories.value_vectors import norm_after, value_measures
from ffmem.models.feedforward import FeedForward, LinearPart
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.models.unembedding import LinearNorm, linear_norm
from ffmem.text import html_table, visible_token

MEMORIES_IN_REPR = 3  # memories that are listed for a person


@dataclass(frozen=True)
class MemoryContribution:
    """One memory's term of a logit."""

    address: Address
    coefficient: float
    amount: float


@dataclass(frozen=True)
class LayerContributions:
    """One layer's terms of a logit.

    In a post-norm block every term has passed the norms behind it, each of which divides by the
    number that it did divide by; `bias` has their shifts. `attention` is all that the block adds
    before the layer: where the first norm's output is passed on (BLOOM with
    `apply_residual_connection_post_layernorm`), also what that norm changes. `rest` is what neither
    attention nor the layer adds: blocks without memories, and rounding.
    """

    layer: int
    attention: float
    memories: float  # the sum over all
    bias: float
    rest: float
    strongest: tuple[MemoryContribution, ...]  # by size, of either sign
    terms: Tensor = field(repr=False)  # [memory], on the CPU: every memory's term
    parts: Parts  # the experts that the terms belong to, in a mixture


@dataclass(frozen=True)
class Contributions:
    """The terms of one token's logit; `logit` is the model's own, before any soft cap.

    An adaptive head's logits are log-probabilities. A notebook shows the terms as a table.
    """

    token: int
    text: str  # of the token
    logit: float
    start: float  # the embedding
    constant: float  # bias, final norm's shift, and what an adaptive head's sums take away
    layers: tuple[LayerContributions, ...] = field(repr=False)
    quantity: Literal["logit", "log-probability"] = "logit"

    @property
    def total(self) -> float:
        """All terms together; equal to `logit` but for rounding."""
        terms = [part.attention + part.memories + part.bias + part.rest for part in self.layers]
        return self.start + sum(terms) + self.constant

    def of(self, address: Address | str) -> float:
        """One memory's term, whichever sign its coefficient has."""
        address = Address.parse(address) if isinstance(address, str) else address
        for part in self.layers:
            if part.layer == address.layer:
                return float(part.terms[part.parts.index(address)])
        raise AddressError(
            f"the model has no layer {address.layer}; its layers are 1 to {len(self.layers)}"
        )

    def strongest(self, count: int) -> list[MemoryContribution]:
        """The memories with the largest terms of either sign, over all layers."""
        found = [memory for part in self.layers for memory in part.strongest]
        return sorted(found, key=lambda memory: -abs(memory.amount))[:count]

    def __repr__(self) -> str:
        return (
            f"<Contributions to the {self.quantity} {self.logit:.3f} of {self.text!r}: "
            f"{_terms_text(self.strongest(MEMORIES_IN_REPR))}; {len(self.layers)} layers>"
        )

    def _repr_html_(self) -> str:
        columns = ("layer", "attention", "memories", "bias", "rest", "strongest memories")
        rows = [
            (
                str(part.layer),
                *(f"{one:.3f}" for one in (part.attention, part.memories, part.bias, part.rest)),
                _terms_text(part.strongest[:MEMORIES_IN_REPR]),
            )
            for part in self.layers
        ]
        return (
            f"{self.quantity} {self.logit:.3f} of <b>{escape(visible_token(self.text))}</b>: "
            f"embedding {self.start:.3f}, constant {self.constant:.3f}, and by layer"
            f"{html_table(columns, rows)}"
        )


def _terms_text(terms: Sequence[MemoryContribution]) -> str:
    return "  ".join(f"{one.address} {one.amount:+.3f}" for one in terms)


@torch.no_grad()
def contributions(
    model: LanguageModel,
    records: Records | PromptExplanation,
    token: int | str,
    count: int = 10,
) -> Contributions:
    """Direct logit attribution: split one token's logit into terms of layers and memories.

    `records` is what `explain_prompt` returns, or its `records`; `token` is an id, or text such
    as `" Paris"`, which must be one token. The `count` largest terms per layer are listed.
    """
    check_model(model)
    records = records.records if isinstance(records, PromptExplanation) else records
    if not isinstance(records, Records) or records.layers[-1].o.shape[:-1] != (1,):
        raise ModelError(
            "contributions are those at one place of one text; pass what `explain_prompt` returns, "
            'or `record(model, text, "hramyo", at=-1)`'
        )
    token = model.token_id(token)
    last = records.layers[-1].o[0]
    towards, constant = direction(model, last, token)
    uncapped = replace(model, head=replace(model.head, softcap=None))
    parts: list[LayerContributions] = []
    factor, after = 1.0, last.cpu().double()  # what later blocks multiply by; the state behind
    for reading in reversed(records.layers):
        leaves = factor * (after - reading.o[0].cpu().double()) @ towards
        of_output = factor * reading.o[0].cpu().double() @ towards
        factor *= reading.layer.output_scale
        towards, shift = _before_sum_norm(reading, towards)
        part = _layer_contributions(reading, factor * towards, count)
        added = factor * ((reading.r[0] + reading.y[0]).cpu().double() @ towards + shift)
        towards, attention, entry_shift = _before_attention(reading, towards)
        part = replace(
            part,
            attention=factor * attention,
            bias=part.bias + factor * (shift + entry_shift),
            rest=part.rest + float(of_output - added + leaves),
        )
        parts.append(part)
        after = reading.h[0].cpu().double()
    return Contributions(
        token=token,
        text=model.token_text(token),
        logit=float(logits(uncapped, last, "residual")[token]),
        start=float(factor * after @ towards),
        constant=constant,
        layers=tuple(reversed(parts)),
        quantity="logit" if model.head.classes is None else "log-probability",
    )


def _layer_contributions(reading: LayerRecord, towards: Tensor, count: int) -> LayerContributions:
    """A feed-forward layer's terms along a direction [width], without attention's.

    `rest` is what the sum over memories misses.
    """
    layer, m = reading.layer, reading.m[0].float()
    of_sum, constant = _before_norm(reading, towards * layer.scale)
    along = of_sum.to(device=m.device, dtype=torch.float32)
    terms = m * value_measures(layer, m, lambda values: values @ along)
    total = float(terms.double().cpu().sum()) if terms.device.type != "mps" else float(terms.sum())
    bias = reading.value_bias
    if bias is not None:
        constant += float(bias.cpu().double() @ of_sum)
    whole = float(reading.y[0].cpu().double() @ towards)
    chosen = terms.abs().topk(min(count, layer.memories)).indices.tolist()
    return LayerContributions(
        layer=layer.number,
        attention=0.0,  # which the caller knows
        memories=total,
        bias=constant,
        rest=whole - total - constant,
        strongest=tuple(
            MemoryContribution(
                cell_address(layer, index, float(m[index])), float(m[index]), float(terms[index])
            )
            for index in chosen
        ),
        terms=terms.cpu(),
        parts=layer.parts,
    )


def _before_sum_norm(reading: LayerRecord, towards: Tensor) -> tuple[Tensor, float]:
    """The direction before the norm around r + y of a post-norm block, and what its shift adds."""
    layer, seen = reading.layer, reading.raw
    if layer.form != "post-norm" or layer.norm is None or "norm in" not in seen:
        return towards, 0.0
    before, behind = seen["norm in"][0], reading.o[0]
    norm = linear_norm(layer.norm, before[None])
    return (towards, 0.0) if norm is None else _through_norm(norm, towards, before, behind)


def _before_attention(reading: LayerRecord, towards: Tensor) -> tuple[Tensor, float, float]:
    """The direction at the block's input, attention's term, and what a norm behind it adds."""
    layer, h = reading.layer, reading.h[0].cpu().double()
    before = reading.raw.get("attention norm in")
    if layer.attention_norm is not None and before is not None:
        norm = linear_norm(layer.attention_norm, before[:1])
        if norm is not None:
            towards, shift = _through_norm(norm, towards, before[0], reading.r[0])
            return towards, float((before[0].cpu().double() - h) @ towards), shift
    gain = _stream_gain(layer)
    return towards * gain, float((reading.r[0].cpu().double() - h * gain) @ towards), 0.0


def _stream_gain(layer: FeedForward) -> Tensor | float:
    """What a block multiplies the residual stream by on its way through, but for attention."""
    gain = layer.gain("residual") * layer.gain("entry")
    return gain.cpu().double() if isinstance(gain, Tensor) else gain


def _before_norm(reading: LayerRecord, towards: Tensor) -> tuple[Tensor, float]:
    """The direction before the norm that a layer's sum passes, and what the norm's shift adds."""
    norm = norm_after(reading.layer)
    if norm is None:
        return towards, 0.0
    return _through_norm(norm, towards, reading.raw["values out"][0], reading.raw["after out"][0])


def direction(model: LanguageModel, state: Tensor, token: int) -> tuple[Tensor, float]:
    """(d, c) with logit = d . state + c, at this state; d [width] in float64 on the CPU."""
    head = model.head
    if not all(isinstance(module, nn.Linear) for module in head.rest):
        raise ModelError(
            f"the way from the last state of {model.name} to the logits is not linear, so a logit "
            "is not a sum over memories"
        )
    towards, constant = _token_direction(model, state, token)
    towards, constant = towards * head.before * head.scale, constant * head.scale
    for module in reversed(head.rest):
        part = LinearPart(module)
        weight, bias = part.weight, part.bias
        if bias is not None:
            constant += float(bias.cpu().double() @ towards)
        towards = towards @ weight.cpu().double()
    if head.norm is None:
        return towards, constant
    towards, shift = _through_norm(head.norm, towards, state, head.chain[0](state.to(model.dtype)))
    return towards, constant + shift


def _token_direction(model: LanguageModel, state: Tensor, token: int) -> tuple[Tensor, float]:
    """(d, c) with a token's score = d . h + c for the h that the embedding reads, at this state.

    In an adaptive head d is the token's vector plus that of its band, and c the two sums over
    exponentials that make log-probabilities: a number of the state, which no memory has a term of.
    """
    head = model.head
    vectors = head.vectors()
    towards = vectors.of(torch.tensor([token]))[0].cpu().double()
    if head.classes is None:
        return towards, 0.0 if head.bias is None else float(head.bias[token])
    h = state.to(head.device, model.dtype)
    for module in head.chain:
        h = module(h)
    h = h.float() * head.before
    offsets = head.band_offsets(vectors.scores(h), h)
    band = next(number for number, ids in enumerate(vectors.spans) if token < ids.stop)
    if not band:
        return towards, float(offsets[0])
    own = head.classes[band - 1].float()
    return towards + own.cpu().double(), float(offsets[band] - h @ own)


def _through_norm(
    norm: LinearNorm, towards: Tensor, before: Tensor, behind: Tensor
) -> tuple[Tensor, float]:
    """Carry a direction from behind a norm to before it, and the constant that its shift adds.

    `before` and `behind` are what went in and what came out; they tell the number that it divided
    by, with the small one that it adds against division by zero.
    """
    shift, gain = norm.shift.cpu().double(), norm.gain.cpu().double()
    folded = norm.fold(before).cpu().double()
    divided = (folded @ folded) / (folded @ (behind.cpu().double() - shift))
    back = gain * towards / divided
    return back - back.mean() if norm.centred else back, float(shift @ towards)
