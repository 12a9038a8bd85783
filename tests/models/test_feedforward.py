"""Layers of several families, computed again from raw weights with places written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ffmem.models.feedforward import LinearPart
from ffmem.models.language_model import LanguageModel

Look = Callable[..., LanguageModel]
TOKENS = torch.tensor([[5, 99, 17, 3, 200, 42, 8, 131], [1, 2, 7, 7, 90, 33, 21, 60]])


@dataclass(frozen=True)
class Hand:
    """One family as its published code describes it, independent of ffmem's table."""

    block: str  # of layer 2
    keys: str
    values: str
    activation: Callable[[Tensor], Tensor]
    r: str  # "into NORM", "x", or "beside ATTENTION"
    gate: str | None = None
    fused: bool = False  # gate and keys in one map, the gate first
    conv1d: bool = False  # weights stored [in, out]
    after: str | None = None
    scale: float = 1.0
    around: str | None = None  # the norm around r + y


def relu2(a: Tensor) -> Tensor:
    return a.relu().square()


def gelu_tanh(a: Tensor) -> Tensor:
    return functional.gelu(a, approximate="tanh")


UP_DOWN = ("model.layers.1", "mlp.up_proj", "mlp.down_proj")
HANDS: dict[str, Hand] = {
    "opt": Hand("model.decoder.layers.1", "fc1", "fc2", torch.relu, "into final_layer_norm"),
    "opt-350m": Hand(
        "model.decoder.layers.1", "fc1", "fc2", torch.relu, "x", around="final_layer_norm"
    ),
    "gpt2": Hand("transformer.h.1", "mlp.c_fc", "mlp.c_proj", gelu_tanh, "into ln_2", conv1d=True),
    "gpt_neox": Hand(
        "gpt_neox.layers.1",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
        functional.gelu,
        "beside attention",
    ),
    "gptj": Hand("transformer.h.1", "mlp.fc_in", "mlp.fc_out", gelu_tanh, "beside attn"),
    "llama": Hand(*UP_DOWN, functional.silu, "into post_attention_layernorm", gate="mlp.gate_proj"),
    "granite": Hand(
        *UP_DOWN,
        functional.silu,
        "into post_attention_layernorm",
        gate="mlp.gate_proj",
        scale=0.22,
    ),
    "phi3": Hand(
        "model.layers.1",
        "mlp.gate_up_proj",
        "mlp.down_proj",
        functional.silu,
        "into post_attention_layernorm",
        fused=True,
    ),
    "gemma2": Hand(
        *UP_DOWN,
        gelu_tanh,
        "into pre_feedforward_layernorm",
        gate="mlp.gate_proj",
        after="post_feedforward_layernorm",
    ),
    "olmo2": Hand(
        *UP_DOWN, functional.silu, "x", gate="mlp.gate_proj", after="post_feedforward_layernorm"
    ),
    "nemotron": Hand(*UP_DOWN, relu2, "into post_attention_layernorm"),
    "bert": Hand(
        "bert.encoder.layer.1",
        "intermediate.dense",
        "output.dense",
        functional.gelu,
        "x",
        around="output.LayerNorm",
    ),
    "cohere": Hand(*UP_DOWN, functional.silu, "beside self_attn", gate="mlp.gate_proj"),
}
CHANGES: dict[str, dict[str, Any]] = {
    "opt-350m": {"do_layer_norm_before": False, "word_embed_proj_dim": 16},
    "granite": {"residual_multiplier": 0.22},
}


@pytest.mark.parametrize("name", HANDS)
@torch.no_grad()
def test_a_layer_computed_by_hand_is_the_layer_that_is_seen(name: str, look: Look) -> None:
    hand, seen = HANDS[name], look(name.split("-")[0], **CHANGES.get(name, {}))
    block = seen.model.get_submodule(hand.block)
    notes = watched(seen.model, block)
    layer = seen.layers[1]

    x, m = notes[f"{hand.keys} in"], notes[f"{hand.values} in"]
    keys, key_bias = raw(block, hand.keys, hand.conv1d)
    values, value_bias = raw(block, hand.values, hand.conv1d)
    a = x @ keys + key_bias
    if hand.fused:
        gate, up = a.chunk(2, dim=-1)
        expected_m = hand.activation(gate) * up
        keys = keys.chunk(2, dim=-1)[1]
    elif hand.gate is not None:
        gate_keys, gate_bias = raw(block, hand.gate, hand.conv1d)
        expected_m = hand.activation(x @ gate_keys + gate_bias) * a
        assert layer.gate_keys is not None
        assert torch.equal(layer.gate_keys, gate_keys.T)
    else:
        expected_m = hand.activation(a)
    torch.testing.assert_close(m, expected_m, rtol=1e-4, atol=1e-5)

    y = sum(m[..., i, None] * values[i] for i in range(values.shape[0])) + value_bias
    if hand.after is not None:
        y = block.get_submodule(hand.after)(y)
    total = residual(hand, notes) + hand.scale * y
    if hand.around is not None:
        total = block.get_submodule(hand.around)(total)
    total = total.reshape(notes["out"].shape)  # OPT folds batch and position into one axis
    torch.testing.assert_close(total, notes["out"], rtol=1e-4, atol=1e-5)

    assert layer.block is block
    assert torch.equal(layer.keys, keys.T)
    assert torch.equal(layer.values, values)
    assert layer.memories == values.shape[0]
    assert layer.scale == hand.scale


def residual(hand: Hand, notes: dict[str, Tensor]) -> Tensor:
    match hand.r.split():
        case ["into", norm]:
            return notes[f"{norm} in"]
        case ["beside", attention]:
            return notes["in"] + notes[f"{attention} out"]
    return notes[f"{hand.keys} in"]


def raw(block: nn.Module, path: str, conv1d: bool) -> tuple[Tensor, Tensor]:
    """([in, out], [out]) of a map, straight from its parameters."""
    module = block.get_submodule(path)
    weight: Tensor = module.weight  # type: ignore[assignment]
    weight = weight if conv1d else weight.T
    bias: Tensor | None = module.bias  # type: ignore[assignment]
    return weight, torch.zeros(weight.shape[1]) if bias is None else bias


def watched(model: nn.Module, block: nn.Module) -> dict[str, Tensor]:
    """What every module of a block got and gave on TOKENS, with hooks of the test's own."""
    notes: dict[str, Tensor] = {}
    hooks = []
    for path, module in block.named_modules():
        name = f"{path} " if path else ""

        def before(_: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            given = args[0] if args else kwargs.get("hidden_states")
            if isinstance(given, Tensor):
                notes[f"{name}in"] = given.clone()

        def after(_: nn.Module, args: Any, given: Any, name: str = name) -> None:
            notes[f"{name}out"] = (given[0] if isinstance(given, tuple) else given).clone()

        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(module.register_forward_hook(after))
    model(input_ids=TOKENS, use_cache=False)
    for hook in hooks:
        hook.remove()
    return notes


def test_keys_and_values_are_views_of_the_weights(look: Look) -> None:
    for kind in ("gpt2", "llama", "phi3"):
        layer = look(kind).layers[0]
        held = {p.untyped_storage().data_ptr() for p in look(kind).model.parameters()}
        assert layer.keys.untyped_storage().data_ptr() in held
        assert layer.values.untyped_storage().data_ptr() in held


def test_the_halves_of_a_fused_map_are_disjoint_and_whole() -> None:
    fused = nn.Linear(4, 6)
    first, second = LinearPart(fused, ":half"), LinearPart(fused, "half:")
    assert torch.equal(torch.cat([first.weight, second.weight]), fused.weight)
    assert first.bias is not None
    assert second.bias is not None
    assert torch.equal(torch.cat([first.bias, second.bias]), fused.bias)


def test_parameters_of_a_layer_are_those_of_its_maps(look: Look) -> None:
    layer = look("llama").layers[0]
    assert layer.parameters == 3 * 32 * 64
    layer = look("gpt2").layers[0]
    assert layer.parameters == 2 * 32 * 64 + 64 + 32
