"""From the last state to the logits: norms, transforms, scales and caps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from ffmem.models.language_model import LanguageModel
from ffmem.models.unembedding import constant_factor, linear_norm

Look = Callable[..., LanguageModel]


@pytest.mark.parametrize(
    ("kind", "changes", "scale", "softcap", "before"),
    [
        ("opt", {}, 1.0, None, 1.0),
        ("cohere", {"logit_scale": 0.25}, 0.25, None, 1.0),
        ("granite", {"logits_scaling": 8.0}, 0.125, None, 1.0),
        ("gemma2", {"final_logit_softcapping": 5.0}, 1.0, 5.0, 1.0),
        ("gemma2", {"final_logit_softcapping": None}, 1.0, None, 1.0),
        ("recurrent_gemma", {"logits_soft_cap": 7.0}, 1.0, 7.0, 1.0),
        ("nanochat", {}, 1.0, 15.0, 1.0),
        ("minicpm3", {"dim_model_base": 16}, 1.0, None, 0.5),
    ],
)
def test_scale_and_cap_are_those_of_the_config(
    kind: str,
    changes: dict[str, Any],
    scale: float,
    softcap: float | None,
    before: float,
    look: Look,
) -> None:
    head = look(kind, **changes).head
    assert head.scale == scale
    assert head.softcap == softcap
    assert head.before == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "changes", "chain", "centred"),
    [
        ("llama", {}, 1, False),
        ("gpt2", {}, 1, True),
        ("gemma2", {}, 1, False),
        ("opt", {"_remove_final_layer_norm": True}, 0, None),
        ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 16}, 1, None),
        ("bart", {}, 0, None),
        ("bert", {}, 1, None),
        ("roberta", {}, 3, None),  # dense, an activation that is no module, norm
        ("megatron-bert", {}, 2, True),
    ],
)
def test_the_chain_to_the_embedding_is_found(
    kind: str, changes: dict[str, Any], chain: int, centred: bool | None, look: Look
) -> None:
    head = look(kind, **changes).head
    assert len(head.chain) == chain
    assert (head.norm.centred if head.norm else None) == centred
    assert len(head.rest) == chain - (head.norm is not None)


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), LlamaRMSNorm(8), GemmaRMSNorm(8)])
@torch.no_grad()
def test_the_linear_part_of_a_norm_repeats_it(norm: nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in norm.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    state = torch.randn(5, 8) * 3 + 1
    part = linear_norm(norm, state)
    assert part is not None
    found = part.fold(state) / part.size(state) + part.shift
    torch.testing.assert_close(found, norm(state), rtol=1e-4, atol=1e-4)
    assert part.centred == isinstance(norm, nn.LayerNorm)


def test_what_is_no_norm_has_no_linear_part_of_one() -> None:
    state = torch.randn(5, 8)
    assert linear_norm(nn.Linear(8, 8), state) is None
    assert linear_norm(nn.Linear(8, 4), state) is None
    assert linear_norm(nn.Tanh(), state) is None


def test_a_constant_factor_is_found_only_where_there_is_one() -> None:
    state = torch.randn(3, 4)
    assert constant_factor(state, state) == 1.0
    assert constant_factor(state, state * 0.25) == pytest.approx(0.25)
    assert constant_factor(state, state + 0.01) is None
    assert constant_factor(state, state[:2]) is None
