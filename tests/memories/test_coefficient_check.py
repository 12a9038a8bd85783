"""`check_coefficients` says of a tensor what it is, by the identity and not by a name."""

from __future__ import annotations

import math

import pytest
import torch

import ffmem
from ffmem.errors import AddressError, ModelError
from ffmem.memories.coefficient_check import UNKNOWN
from ffmem.models.blocks.forms import stock_activation

KINDS = ("opt", "bloom", "llama", "gemma2", "granite", "gpt_neox", "mixtral", "gpt_oss")
IDS = [[5, 70, 90, 44, 22], [9, 60, 61]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_coefficients_fulfil_the_identity_and_nothing_else_does(kind: str) -> None:
    model = ffmem.load(f"tiny:{kind}")
    reading = ffmem.record(model, IDS)["L2"]

    def found(tensor: torch.Tensor) -> ffmem.CoefficientCheck:
        return ffmem.check_coefficients(model, 2, tensor, IDS)

    m = found(reading.m)
    assert (m.holds, m.is_a) == (True, "the coefficients")
    assert m.error < 1e-5
    assert not found(reading.m * 1.01).holds
    assert found(reading.m.flip(-1)).is_a == UNKNOWN
    others = {"before the activation function": reading.a}
    if reading.u is not None:
        others["without the gate"] = reading.u
    if reading.layer.activation == "silu":
        others["alone, without the up projection"] = stock_activation("silu")(reading.a)
    others |= {"as it is added": reading.y, "the residual included": reading.o}
    for words, tensor in others.items():
        check = found(tensor)
        assert not check.holds
        assert words in check.is_a
        assert math.isinf(check.error) == (tensor.shape[-1] != reading.layer.memories)


def test_what_is_behind_a_norm_of_the_block_is_told_from_the_sum_of_the_values() -> None:
    model = ffmem.load("tiny:olmo2")
    layer, kept = model.layer(2), []
    ids = torch.tensor(IDS[:1])
    with layer.value_map.module.register_forward_hook(lambda *given: kept.append(given[2])):
        reading = ffmem.record(model, ids)["L2"]
    assert "before the block's norm" in ffmem.check_coefficients(model, 2, kept[0], ids).is_a
    assert "as it is added" in ffmem.check_coefficients(model, 2, reading.y, ids).is_a


def test_a_prompt_is_read_with_its_bos_and_says_so_where_the_tensor_is_not() -> None:
    model = ffmem.load("tiny:opt")
    m = ffmem.record(model, "the river")["L3"].m
    assert ffmem.check_coefficients(model, 3, m, "the river").holds
    assert ffmem.check_coefficients(model, 3, m[0], "the river").holds  # without a batch
    with pytest.raises(ModelError, match="with its BOS; give the token ids"):
        ffmem.check_coefficients(model, 3, m[:, 1:], "the river")


def test_what_cannot_be_coefficients_is_refused() -> None:
    model = ffmem.load("tiny:opt")
    for wrong in (None, [1.0], torch.ones(3), torch.ones(2, 3, dtype=torch.long), "m"):
        with pytest.raises(ModelError, match="cannot be coefficients"):
            ffmem.check_coefficients(model, 1, wrong, "a")
    with pytest.raises(AddressError, match="no layer 4"):
        ffmem.check_coefficients(model, 4, torch.ones(2, 64), "a")
    with pytest.raises(ModelError, match="layer is 'L1'"):
        ffmem.check_coefficients(model, "L1", torch.ones(2, 64), "a")
    text = str(ffmem.check_coefficients(model, 1, torch.ones(2, 64), "a"))
    assert text.startswith("these are not the coefficients of layer 1 (relative error")
