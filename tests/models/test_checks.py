"""A wrong row, a wrong weight or a model that reads ahead does not get past the equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from ffmem.errors import ModelError
from ffmem.models.blocks.trace import relative_error, sum_error
from ffmem.models.families import FAMILIES, Family
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import Identity, wrap

Look = Callable[..., LanguageModel]


def swapped(row: Family) -> Family:
    return replace(row, keys=row.values, values=row.keys)


WRONG: list[tuple[str, dict[str, Any], Callable[[Family], Family]]] = [
    ("opt", {}, swapped),
    ("llama", {}, swapped),
    ("gpt2", {}, swapped),
    ("llama", {}, lambda row: replace(row, norm="input_layernorm")),
    ("gpt2", {}, lambda row: replace(row, norm="ln_1")),
    ("llama", {}, lambda row: replace(row, norm=None, attention=None)),
    ("llama", {}, lambda row: replace(row, gate=None)),
    ("llama", {}, lambda row: replace(row, keys=str(row.gate), gate=row.keys)),
    ("phi3", {}, lambda row: replace(row, keys=str(row.gate), gate=row.keys)),
    ("granite", {}, lambda row: replace(row, scale=None)),
    ("granite", {}, lambda row: replace(row, scale="rms_norm_eps")),
    ("gemma2", {}, lambda row: replace(row, after=None)),
    ("gemma2", {}, lambda row: replace(row, after="post_attention_layernorm")),
    ("llama", {}, lambda row: replace(row, after="no_such_norm")),
    ("llama", {}, lambda row: replace(row, gate="mlp.no_such_map")),
    ("llama", {}, lambda row: replace(row, blocks="model.no_such_blocks")),
    ("llama", {}, lambda row: replace(row, keys="mlp.no_such_map")),
    ("gptj", {}, lambda row: replace(row, attention="ln_1")),
    ("cohere", {}, lambda row: replace(row, attention="mlp")),
    ("opt", {"do_layer_norm_before": False}, lambda row: replace(row, norm=None)),
]


@pytest.mark.parametrize(("kind", "changes", "spoil"), WRONG)
def test_a_wrong_row_is_refused(
    kind: str,
    changes: dict[str, Any],
    spoil: Callable[[Family], Family],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FAMILIES, kind, spoil(FAMILIES[kind]))
    with pytest.raises(ModelError):
        wrap(tiny_model(kind, **changes))


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_an_encoder_is_refused_because_it_reads_ahead(kind: str) -> None:
    with pytest.raises(ModelError, match="reads ahead"):
        wrap(tiny_model(kind, is_decoder=False))


def test_the_message_names_the_model_the_equation_and_what_to_do() -> None:
    identity = Identity(memories=0.0, activation=0.0, residual=0.2, head=0.0, causal=0.0)
    with pytest.raises(ModelError) as caught:
        identity.check("some-model", torch.float32)
    assert "some-model" in str(caught.value)
    assert "residual plus feed-forward output" in str(caught.value)
    assert "add-a-family.md" in str(caught.value)


@pytest.mark.parametrize("error", [float("nan"), float("inf"), 1e-3])
def test_what_cannot_be_measured_does_not_pass(error: float) -> None:
    identity = Identity(error, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ModelError):
        identity.check("some-model", torch.float32)


@pytest.mark.parametrize("kind", ["opt", "llama", "gpt_neox", "gemma2", "granite", "phi3", "bert"])
@pytest.mark.parametrize("by", ["row", "structure"])
def test_sixteen_bits_are_seen_as_the_same_layers(
    kind: str, by: str, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = look(kind)
    if by == "structure":
        monkeypatch.delitem(FAMILIES, kind)
    found = wrap(tiny_model(kind).to(torch.bfloat16))
    assert found.known_by == by
    assert [(layer.form, layer.activation, layer.scale) for layer in found.layers] == [
        (layer.form, layer.activation, layer.scale) for layer in expected.layers
    ]
    assert found.head.softcap == expected.head.softcap
    assert found.head.scale == expected.head.scale


def test_relative_error_is_a_distance_between_equal_shapes() -> None:
    one = torch.tensor([3.0, 4.0])
    assert relative_error(one, one) == 0
    assert relative_error(one * 1.5, one) == pytest.approx(0.5)
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0
    assert relative_error(one, torch.zeros(2)) == float("inf")
    assert relative_error(one, torch.ones(3)) == float("inf")
    assert relative_error(torch.full((2,), float("nan")), one) == float("inf")


def test_a_sum_counts_only_if_the_addend_has_a_part_in_it() -> None:
    torch.manual_seed(0)
    r, y = torch.randn(50), torch.randn(50)
    assert sum_error(r, y, r + y) < 1e-6
    assert sum_error(r, 1e-6 * y, r) == float("inf")
    assert sum_error(r, 1e-6 * y, r + 1e-6 * y) < 1e-6
    assert sum_error(r, torch.zeros(50), r) == 0
