"""Architectures without a row: found by structure, or refused with a reason."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from ffmem.errors import ModelError
from ffmem.memories.recording import record
from ffmem.models.families import FAMILIES
from ffmem.models.feedforward import FeedForward
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap


def parts(layer: FeedForward) -> tuple[object, ...]:
    return (
        layer.block,
        layer.key_map,
        layer.gate_map,
        layer.value_map,
        layer.after,
        layer.scale,
        layer.form,
        layer.activation,
    )


@pytest.mark.parametrize("kind", FAMILIES)
def test_structure_finds_what_the_row_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(kind)
    expected = wrap(model)
    monkeypatch.delitem(FAMILIES, kind)
    found = wrap(model)
    assert (expected.known_by, found.known_by) == ("row", "structure")
    assert [parts(layer) for layer in found.layers] == [parts(layer) for layer in expected.layers]


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("bamba", 3),
        ("gemma4_text", 3),
        ("olmo_hybrid", 3),
        ("recurrent_gemma", 3),
        ("xlstm", 3),
        ("moshi", 3),
        ("bitnet", 3),
        ("doge", 3),
        ("falcon_h1", 3),
    ],
)
def test_types_without_a_row_pass_by_structure(kind: str, layers: int) -> None:
    seen = wrap(tiny_model(kind))
    assert seen.known_by == "structure"
    assert len(seen.layers) == layers


def test_blocks_that_do_not_run_on_text_are_skipped_and_keep_their_index() -> None:
    seen = wrap(tiny_model("mllama"))
    assert [(layer.number, layer.block_index) for layer in seen.layers] == [(1, 0), (2, 2), (3, 3)]


def test_a_number_on_the_way_out_of_a_block_is_found() -> None:
    seen = wrap(tiny_model("gemma4_unified_text"))
    assert [layer.output_scale for layer in seen.layers] == pytest.approx([0.8] * 3)


def test_a_gate_with_numbers_of_its_own_is_found() -> None:
    layers = wrap(tiny_model("falcon_h1")).layers
    assert {layer.activation for layer in layers} == {"silu of 0.5 x"}
    assert [layer.scale for layer in layers] == pytest.approx([0.75] * 3)
    dense = wrap(tiny_model("minimax_m3_vl_text", mlp_layer_types=["dense"] * 3)).layers
    assert {layer.activation for layer in dense} == {"swigluoai"}


def test_a_norm_between_activation_and_values_is_a_part_of_the_coefficients() -> None:
    seen = wrap(tiny_model("bitnet"))
    assert {layer.activation for layer in seen.layers} == {"relu2, then mlp.ffn_sub_norm"}
    for reading in record(seen, torch.arange(5), "amu"):
        norm = reading.layer.block.mlp.ffn_sub_norm
        expected = norm(ACT2FN["relu2"](reading.a) * reading.u)
        torch.testing.assert_close(reading.m, expected)


def test_vectors_that_multiply_the_residual_are_a_part_of_r() -> None:
    seen = wrap(tiny_model("doge"))
    for reading in record(seen, torch.arange(5), "hryo"):
        torch.testing.assert_close(reading.r + reading.y, reading.o)
        assert reading.layer.gain("entry") is reading.layer.block.input_residual
        assert reading.layer.gain("residual") is reading.layer.block.post_attention_residual


def test_experts_that_cannot_be_read_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match="mixtures of experts"):
        wrap(tiny_model("dbrx"))


def test_dense_layers_beside_experts_are_found_too() -> None:
    seen = wrap(tiny_model("deepseek_v3"))
    assert [layer.mixture is None for layer in seen.layers] == [True, False, False]


def test_the_dense_form_of_a_family_with_experts_passes() -> None:
    assert wrap(tiny_model("granitemoehybrid", num_local_experts=0)).known_by == "structure"


def test_a_model_without_feed_forward_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="add a row as docs/how-to/add-a-family.md says"):
        wrap(tiny_model("mamba"))


def test_a_tiny_number_of_the_config_cannot_stand_for_a_scale() -> None:
    # In zamba the feed-forward output does not reach the block's output unchanged; scaled by
    # rms_norm_eps it would be too small to be missed.
    with pytest.raises(ModelError, match="follows no known form"):
        wrap(tiny_model("zamba"))


def test_an_adapter_is_not_taken_for_the_feed_forward_layer() -> None:
    with pytest.raises(
        ModelError, match=r"output\.dense adds to the residual follows no known form"
    ):
        wrap(tiny_model("xmod"))


def test_blocks_that_run_more_than_once_are_refused() -> None:
    with pytest.raises(ModelError, match="exactly once"):
        wrap(tiny_model("hrm_text"))


def test_a_model_that_needs_more_than_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("opt")
    of_text = model.forward
    monkeypatch.setattr(model, "forward", lambda picture, **text: of_text(**text))
    with pytest.raises(ModelError, match=r"token ids alone .*picture"):
        wrap(model)


def test_seeing_leaves_the_model_as_it_was() -> None:
    model = tiny_model("helium")
    tokens = torch.tensor([[3, 4, 5]])
    before = model(tokens).logits
    wrap(model)
    assert torch.equal(before, model(tokens).logits)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
