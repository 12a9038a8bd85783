"""Toy models are small, the same every time, and random enough to show mistakes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ffmem.errors import ModelError
from ffmem.models.tiny import merge_settings, tiny_model, tiny_tokenizer


def test_a_toy_is_the_same_every_time_and_leaves_the_random_state_alone() -> None:
    state = torch.random.get_rng_state()
    one, other, third = tiny_model("gpt2"), tiny_model("gpt2"), tiny_model("gpt2", seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.lm_head.weight, third.lm_head.weight)


def test_toys_made_by_several_threads_at_once_are_the_same() -> None:
    """Before, each drew from the other's random state."""
    expected = torch.cat([one.flatten() for one in tiny_model("gpt2").state_dict().values()])
    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(tiny_model, ["gpt2"] * 12):
            found = torch.cat([one.flatten() for one in model.state_dict().values()])
            assert torch.equal(found, expected)


def test_biases_and_gains_are_not_what_they_are_made_as() -> None:
    model = tiny_model("gpt2")
    assert model.transformer.h[0].mlp.c_proj.bias.abs().min() > 0
    assert model.transformer.ln_f.weight.sub(1).abs().min() > 0


def test_configs_inside_a_config_are_small_too() -> None:
    model = tiny_model("gemma3")
    assert sum(parameter.numel() for parameter in model.parameters()) < 200_000


def test_changes_reach_the_config() -> None:
    assert tiny_model("opt", ffn_dim=48).config.ffn_dim == 48
    assert (
        tiny_model("gemma3", text_config={"intermediate_size": 48}).config.text_config.to_dict()[
            "intermediate_size"
        ]
        == 48
    )


def test_dicts_are_merged_to_the_bottom() -> None:
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 4}, "e": 5}
    assert merge_settings(one, other) == {"a": 1, "b": {"c": 2, "d": 4}, "e": 5}


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ModelError, match="no causal language model of type 'opd'"):
        tiny_model("opd")


@pytest.mark.parametrize("text", ["the river", "", "Füße, 日本, 🙂\n\t\x00"])
def test_the_tokenizer_gives_back_what_it_read(text: str) -> None:
    tokenizer = tiny_tokenizer()
    tokens = tokenizer.encode(text)
    assert len(tokens) == len(text.encode())
    assert tokenizer.decode(tokens) == text
