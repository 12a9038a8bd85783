"""Mixtures of experts: understood by their sums, read without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ffmem.address import Parts
from ffmem.cli.commands.model import describe
from ffmem.errors import ModelError
from ffmem.memories.recording import record
from ffmem.models.experts.routing import experts_in
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

Look = Callable[..., LanguageModel]

MIXTURES: list[tuple[str, dict[str, Any], list[Parts]]] = [
    ("mixtral", {}, [Parts(4, 64, ())] * 3),
    ("olmoe", {}, [Parts(4, 64, ())] * 3),
    ("qwen2_moe", {}, [Parts(4, 16, (16,))] * 3),
    ("deepseek_v3", {}, [Parts.dense(64)] + [Parts(4, 16, (16,))] * 2),
    ("gpt_oss", {}, [Parts(4, 64, ())] * 3),
    ("granitemoe", {}, [Parts(4, 64, ())] * 3),
    ("llama4_text", {}, [Parts(4, 64, (64,))] * 3),
    ("axk1", {}, [Parts.dense(64)] + [Parts(4, 16, (16,))] * 2),  # with a norm inside, behind y
    ("granitemoehybrid", {}, [Parts(4, 64, (16,))] * 3),  # with the shared expert outside
    ("minimax_m3_vl_text", {}, [Parts(4, 64, (16,))] * 3),  # with a gate of its own
    ("mixtral", {"num_experts_per_tok": 4}, [Parts(4, 64, ())] * 3),
    ("mixtral", {"num_local_experts": 1, "num_experts_per_tok": 1}, [Parts(1, 64, ())] * 3),
]


def own_sums(model: LanguageModel, tokens: Tensor) -> list[Tensor]:
    """What the mixtures of a model give when nobody reads them."""
    mixtures = [layer.mixture for layer in model.layers if layer.mixture is not None]
    found: list[list[Tensor]] = [[] for _ in mixtures]
    handles = []
    for mixture, sums in zip(mixtures, found, strict=True):

        def note(_module: nn.Module, args: Any, output: Any = None, into: Any = sums) -> None:
            y = args[0] if output is None else output
            into.append(y if isinstance(y, Tensor) else y[0])

        if mixture.norm is not None:
            handles.append(mixture.norm.register_forward_pre_hook(note))
        else:
            handles += [module.register_forward_hook(note) for module in mixture.modules]
    with torch.no_grad():
        model.model(tokens)
    for handle in handles:
        handle.remove()
    return [sum((y.reshape_as(sums[0]) for y in sums[1:]), sums[0]) for sums in found]


@pytest.mark.parametrize(("kind", "changes", "parts"), MIXTURES)
def test_coefficients_times_values_and_weighted_biases_are_the_mixtures_sum(
    look: Look, kind: str, changes: dict[str, Any], parts: list[Parts]
) -> None:
    model = look(kind, **changes)
    assert [layer.parts for layer in model.layers] == parts
    tokens = torch.arange(20).reshape(2, 10) * 11 % 250
    sums = own_sums(model, tokens)
    layers = [one for one in record(model, tokens, "mwy") if one.layer.mixture is not None]
    for reading, y in zip(layers, sums, strict=True):
        mixture = reading.layer.mixture
        assert mixture is not None
        total = reading.m @ reading.layer.values
        if mixture.biases is not None:
            total = total + reading.w @ mixture.biases
        torch.testing.assert_close(total, y.reshape_as(total), rtol=1e-3, atol=1e-5)
        chosen = (reading.w[..., : mixture.parts.experts] != 0).sum(-1)
        assert (chosen == model.model.config.num_experts_per_tok).all()


@pytest.mark.parametrize("kind", ["qwen2_moe", "gpt_oss", "nemotron_h"])
def test_keys_gate_and_activation_give_the_coefficients(look: Look, kind: str) -> None:
    """m / w is what the model's own gate, or activation, makes of x . keys, one expert a time."""
    model = look(kind)
    tokens = torch.arange(12)[None] * 17 % 250
    for reading in record(model, tokens, "xamuw"):
        mixture = reading.layer.mixture
        if mixture is None:
            continue
        parts, x = mixture.parts, reading.x[0]
        experts = mixture.experts
        for expert in range(parts.experts):
            own = slice(expert * parts.size, (expert + 1) * parts.size)
            w = reading.w[0, :, expert, None]
            u = x @ reading.layer.keys[own].T
            if experts.has_bias:
                bias = mixture.half(experts.gate_up_proj_bias[expert], "keys")
                assert torch.equal(reading.layer.key_map.bias[own], bias)  # type: ignore[index]
                u = u + bias
            elif not any(one.key_map.bias is not None for one in mixture.shared):
                assert reading.layer.key_map.bias is None
            if not mixture.gated:
                torch.testing.assert_close(reading.m[0, :, own], w * experts.act_fn(u))
                continue
            assert reading.u is not None
            on = (w != 0).float()
            torch.testing.assert_close(reading.u[0, :, own], on * u, rtol=1e-3, atol=1e-5)


def test_reading_leaves_the_model_as_it_was(look: Look) -> None:
    model = look("qwen2_moe")
    inner = model.model
    before = inner.config._experts_implementation
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in inner.modules()]
    names = [name for name, _ in inner.named_modules()]
    record(model, torch.arange(5), "hrxamyow")
    assert inner.config._experts_implementation == before != "ffmem"
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in inner.modules()]
    assert names == [name for name, _ in inner.named_modules()]


def test_one_model_that_is_wrapped_twice_is_read_by_both() -> None:
    inner = tiny_model("mixtral")
    one, other = wrap(inner), wrap(inner)
    tokens = torch.arange(6)
    expected = record(one, tokens, "m").layer(2).m
    layer = one.layers[1]
    noted: list[Tensor] = []
    assert layer.mixture is not None
    leave = layer.mixture.listen(lambda reading: noted.append(reading.coefficients))  # type: ignore[arg-type,return-value,func-returns-value]
    try:
        torch.testing.assert_close(record(other, tokens, "m").layer(2).m, expected)
    finally:
        leave()
    torch.testing.assert_close(noted[0], expected[0])
    assert inner.config._experts_implementation != "ffmem"


def test_an_expert_that_is_never_chosen_has_no_coefficients() -> None:
    inner = tiny_model("qwen3_moe")
    with torch.no_grad():
        for layer in inner.model.layers:
            layer.mlp.gate.weight[2] = 0  # a softmax never takes it: others are above
            layer.mlp.gate.weight[0] = layer.mlp.gate.weight[1]  # and two that always tie
    model = wrap(inner, tiny_tokenizer())
    for reading in record(model, "the river runs", "mw"):
        tied = reading.w[..., 0], reading.w[..., 1]
        both = (tied[0] != 0) & (tied[1] != 0)
        torch.testing.assert_close(tied[0][both], tied[1][both])
        unused = reading.w[..., 2] == 0
        assert not reading.m[..., 32:48][unused].any()


def test_a_sum_that_is_not_that_of_the_experts_is_refused() -> None:
    inner = tiny_model("mixtral")
    experts = experts_in(inner)[0]
    gate = experts._apply_gate
    calls: list[int] = []

    def drift(scores: Tensor) -> Tensor:
        calls.append(1)
        return gate(scores) * (1.0 + len(calls))

    experts._apply_gate = drift  # type: ignore[assignment]
    with pytest.raises(ModelError, match="coefficients times values do not add up"):
        wrap(inner)


@pytest.mark.parametrize("seed", range(3))
def test_sixteen_bits_that_route_otherwise_later_are_not_an_error(seed: int) -> None:
    """The reading rounds otherwise than the model's own loop, and routers near a tie show it."""
    from transformers import OlmoeConfig, OlmoeForCausalLM

    config = OlmoeConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=32,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_experts=32,
        num_experts_per_tok=4,
        max_position_embeddings=64,
        initializer_range=0.2,
        pad_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(seed)
    model = OlmoeForCausalLM(config).to(torch.bfloat16).eval()
    assert wrap(model, name="deep").identity.memories < 0.02


def test_values_of_some_memories_are_rows_of_all(look: Look) -> None:
    for kind in ("qwen2_moe", "gpt_oss"):
        layer = look(kind).layers[0]
        indices = [0, 17, layer.memories - 1, 3]
        assert torch.equal(layer.values_at(indices), layer.values[indices])
        assert layer.keys.shape == layer.values.shape == (layer.memories, layer.width)


def test_inspect_names_the_experts_and_says_when_quantisation_left_them_out() -> None:
    inner = tiny_model("qwen2_moe")
    model = wrap(inner)
    said = describe(model)["experts"]
    assert said == "in 3 of 3 layers: 4 of 16 memories, and a shared one of 16"
    assert "experts" not in describe(wrap(tiny_model("llama")))
    for layer in inner.model.layers:
        packed = nn.Parameter(torch.zeros(8, 8, dtype=torch.uint8), requires_grad=False)
        layer.self_attn.q_proj.weight = packed
    assert (
        describe(model)["experts"]
        == f"{said}; they are not quantised, as other weights are, but in float32"
    )
