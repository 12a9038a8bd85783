"""Whether a tensor of another library is the coefficients: coefficients x values + bias = output.

Libraries that hook a model give their tensors names of their own, and the same name means one thing
in one family and another in the next. The identity does not depend on a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ffmem.errors import ModelError, shorten, whole_number
from ffmem.memories.recording import LayerRecord, PromptTexts, record_forward, token_rows
from ffmem.models.blocks.forms import NAMES, stock_activation
from ffmem.models.blocks.trace import relative_error
from ffmem.models.language_model import LanguageModel, check_model
from ffmem.models.wrapping import largest_error

UNKNOWN = "none of the layer's quantities"


@dataclass(frozen=True)
class CoefficientCheck:
    """What `check_coefficients` found.

    `error` is |tensor x values + bias - output| / |output|, infinite where the tensor does not have
    an entry for every memory; `holds` says whether that is rounding alone. `is_a` names the
    quantity of the layer that the tensor is.
    """

    layer: int
    error: float
    holds: bool
    is_a: str

    def __str__(self) -> str:
        word = "are" if self.holds else "are not"
        return (
            f"these {word} the coefficients of layer {self.layer} "
            f"(relative error {self.error:.1e}): the tensor is {self.is_a}"
        )


@torch.no_grad()
def check_coefficients(
    model: LanguageModel, layer: int, tensor: Tensor, text: PromptTexts
) -> CoefficientCheck:
    """Check whether a tensor, such as another library's hook gives it, is a layer's coefficients.

    `tensor` is [position, memory] or [batch, position, memory] of layer `layer`, which counts from
    1, on `text`: the same prompt, or better the same token ids, because libraries differ in
    whether they put a BOS in front. What counts is whether tensor x values + bias is the layer's
    output.
    """
    check_model(model)
    chosen = model.layer(whole_number(layer, "layer", ModelError))
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or tensor.ndim < 2:
        wrong = str(list(tensor.shape)) if isinstance(tensor, Tensor) else repr(tensor)
        raise ModelError(
            f"{shorten(wrong)} cannot be coefficients; give numbers [position, memory] or "
            "[batch, position, memory]"
        )
    tokens, lengths, lead = token_rows(model, text)
    rows, columns = tokens.shape
    if tensor.numel() != rows * columns * tensor.shape[-1]:
        read = f"[{rows}, {columns}, ...]{' with its BOS' if lead else ''}"
        raise ModelError(
            f"the tensor has the shape {list(tensor.shape)} and the text {read}; give the token "
            "ids that the tensor was made from"
        )
    inside = torch.arange(columns) < lengths[:, None]

    def keep(found: Tensor) -> Tensor:
        return found.reshape(rows, columns, -1)[inside.to(found.device)].clone()

    with record_forward([chosen], "hrxamyo", keep) as (reading,):
        model.run_blocks(tokens)
    given = keep(tensor.detach()).to(chosen.device)
    error = _identity_error(reading, given)
    limit = largest_error(model.dtype, bool(chosen.effective_parts))
    return CoefficientCheck(chosen.number, error, error <= limit, _name_of(reading, given, limit))


def _identity_error(reading: LayerRecord, m: Tensor) -> float:
    """How far m x values + bias is from what the values really gave."""
    layer, expected = reading.layer, reading.raw["values out"]
    if m.shape[-1] != layer.memories:
        return float("inf")
    found = m.float() @ layer.values.float()
    if layer.mixture is not None and layer.mixture.biases is not None:
        found = found + reading.raw["router out"].float() @ layer.mixture.biases.float()
    elif (bias := layer.value_bias) is not None:
        found = found + bias.float()
    return relative_error(found, expected)


def _name_of(reading: LayerRecord, given: Tensor, limit: float) -> str:
    """The quantity of a layer that a tensor is."""
    same = (name for name, one in _quantities(reading) if relative_error(given, one) <= limit)
    return next(same, UNKNOWN)


def _quantities(reading: LayerRecord) -> Iterator[tuple[str, Tensor]]:
    """What other libraries have hooks on, by the words for it."""
    layer, u = reading.layer, reading.u
    yield "the coefficients", reading.m
    scores = "the gate's scores" if layer.gated else "the keys' scores"
    yield f"{scores} before the activation function", reading.a
    if u is not None:
        yield "the up projection's scores, without the gate", u
    if layer.activation in NAMES:
        without = "alone, without the up projection" if layer.gated else "of the keys' scores"
        yield f"the activation function {without}", stock_activation(layer.activation)(reading.a)
    yield "the input of the keys, behind the norm", reading.x
    yield "the layer's output as it is added to the residual", reading.y
    yield "the sum of the values, before the block's norm or factor", reading.raw["values out"]
    yield "the block's output, the residual included", reading.o
    yield "the residual that the layer's output is added to", reading.r
    yield "the block's input", reading.h
