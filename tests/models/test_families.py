"""Every family of the table on a toy: the equations hold, in the form that is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ffmem.models.blocks.trace import first_tensor
from ffmem.models.families import FAMILIES
from ffmem.models.language_model import LanguageModel
from ffmem.models.wrapping import state_logits
from tests.near_ties import assert_best

Look = Callable[..., LanguageModel]

# What each type is, written down by hand: form of the block, activation, gated or not.
EXPECTED = {
    "apertus": "sequential mlp.act_fn",
    "arcee": "sequential relu2",
    "bart": "post-norm gelu",
    "bert": "post-norm gelu",
    "bert-generation": "post-norm gelu",
    "big_bird": "post-norm gelu_new",
    "bigbird_pegasus": "sequential gelu_new",
    "biogpt": "sequential gelu",
    "blenderbot": "sequential gelu",
    "blenderbot-small": "post-norm gelu",
    "bloom": "sequential mlp.gelu_impl",
    "camembert": "post-norm gelu",
    "codegen": "parallel gelu_new",
    "cohere": "parallel silu gated",
    "cohere2": "parallel silu gated",
    "cohere_compass_text": "parallel silu gated",
    "cwm": "sequential silu gated",
    "data2vec-text": "post-norm gelu",
    "diffllama": "sequential silu gated",
    "electra": "post-norm gelu",
    "ernie": "post-norm gelu",
    "ernie4_5": "sequential silu gated",
    "exaone4": "sequential silu gated",
    "fairseq_lm": "sequential relu",
    "falcon": "parallel gelu",
    "gemma": "sequential gelu_pytorch_tanh gated",
    "gemma2": "sequential gelu_pytorch_tanh gated",
    "gemma3": "sequential gelu_pytorch_tanh gated",
    "gemma3_text": "sequential gelu_pytorch_tanh gated",
    "git": "post-norm gelu",
    "glm": "sequential silu gated",
    "glm4": "sequential silu gated",
    "gpt2": "sequential gelu_new",
    "gpt_bigcode": "sequential gelu_pytorch_tanh",
    "gpt_neo": "sequential gelu_new",
    "gpt_neox": "parallel gelu",
    "gpt_neox_japanese": "sequential gelu",
    "gptj": "parallel gelu_new",
    "granite": "sequential silu gated",
    "granite_swa": "sequential silu gated",
    "helium": "sequential silu gated",
    "hunyuan_v1_dense": "sequential silu gated",
    "jais2": "sequential relu2",
    "lfm2": "sequential silu gated",
    "llama": "sequential silu gated",
    "marian": "post-norm gelu",
    "mbart": "sequential gelu",
    "megatron-bert": "sequential gelu",
    "minicpm3": "sequential silu gated",
    "ministral": "sequential silu gated",
    "ministral3": "sequential silu gated",
    "mistral": "sequential silu gated",
    "modernbert-decoder": "sequential gelu gated",
    "mpt": "sequential gelu",
    "mvp": "post-norm gelu",
    "nanochat": "sequential relu2",
    "nemotron": "sequential relu2",
    "olmo": "sequential silu gated",
    "olmo2": "sequential silu gated",
    "olmo3": "sequential silu gated",
    "openai-gpt": "post-norm gelu_new",
    "opt": "sequential relu",
    "pegasus": "sequential gelu",
    "persimmon": "sequential relu2",
    "phi": "parallel gelu_new",
    "phi3": "sequential silu gated",
    "phi4_multimodal": "sequential silu gated",
    "plbart": "post-norm gelu",
    "qwen2": "sequential silu gated",
    "qwen3": "sequential silu gated",
    "qwen3_5_text": "sequential silu gated",
    "rembert": "post-norm gelu",
    "roberta": "post-norm gelu",
    "roberta-prelayernorm": "sequential gelu",
    "roc_bert": "post-norm gelu",
    "roformer": "post-norm gelu",
    "seed_oss": "sequential silu gated",
    "smollm3": "sequential silu gated",
    "stablelm": "sequential silu gated",
    "starcoder2": "sequential gelu_pytorch_tanh",
    "trocr": "post-norm gelu",
    "vaultgemma": "sequential gelu_pytorch_tanh gated",
    "whisper": "sequential gelu",
    "xglm": "sequential gelu",
    "xlm-roberta": "post-norm gelu",
    "xlm-roberta-xl": "sequential gelu",
    "youtu": "sequential silu gated",
}

# Forms that hide behind one name.
VARIANTS: list[tuple[str, dict[str, Any], str]] = [
    ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 16}, "post-norm relu"),
    ("opt", {"_remove_final_layer_norm": True}, "sequential relu"),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, "parallel gelu"),
    ("falcon", {"parallel_attn": False}, "sequential gelu"),
    ("falcon", {"parallel_attn": False, "alibi": True, "bias": True}, "sequential gelu"),
    ("gpt_neox", {"use_parallel_residual": False}, "sequential gelu"),
    ("stablelm", {"use_parallel_residual": True}, "parallel silu gated"),
    (
        "bloom",
        {"apply_residual_connection_post_layernorm": True},
        "normed-residual mlp.gelu_impl",
    ),
    ("gpt_bigcode", {"multi_query": False}, "sequential gelu_pytorch_tanh"),
    ("granite", {"residual_multiplier": 0.22, "logits_scaling": 8.0}, "sequential silu gated"),
    ("cohere", {"logit_scale": 0.25}, "parallel silu gated"),
    ("gemma2", {"final_logit_softcapping": 5.0}, "sequential gelu_pytorch_tanh gated"),
    ("gpt2", {"tie_word_embeddings": False}, "sequential gelu_new"),
    ("llama", {"mlp_bias": True, "tie_word_embeddings": True}, "sequential silu gated"),
    ("mistral", {"hidden_act": "gelu"}, "sequential gelu gated"),
]

PROMISED = {
    *("opt", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "gpt_neox", "codegen", "bloom", "falcon"),
    *("mpt", "phi", "phi3", "persimmon", "nemotron", "xglm", "biogpt", "llama", "mistral"),
    *("qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo", "olmo2", "stablelm"),
    *("starcoder2", "cohere", "granite", "smollm3", "glm4"),
}


def test_every_promised_type_has_a_row_and_every_row_an_expectation() -> None:
    assert set(FAMILIES) >= PROMISED
    assert set(EXPECTED) == set(FAMILIES)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_toy_of_each_family_obeys_the_equations(kind: str, look: Look) -> None:
    seen = look(kind)
    assert seen.known_by == "row"
    assert_small(seen)
    assert_exact(seen)
    assert describe(seen) == EXPECTED[kind]


@pytest.mark.parametrize(("kind", "changes", "expected"), VARIANTS)
def test_each_form_behind_one_name_obeys_the_equations(
    kind: str, changes: dict[str, Any], expected: str, look: Look
) -> None:
    seen = look(kind, **changes)
    assert seen.known_by == "row"
    assert_exact(seen)
    assert describe(seen) == expected


def describe(seen: LanguageModel) -> str:
    kinds = {f"{layer.form} {layer.activation}{' gated' * layer.gated}" for layer in seen.layers}
    assert len(kinds) == 1
    return kinds.pop()


def assert_small(seen: LanguageModel) -> None:
    """A toy is a toy: names of sizes that a config does not know would leave it at full size."""
    parameters = sum(parameter.numel() for parameter in seen.model.parameters())
    assert parameters < 200_000
    assert 2 <= len(seen.layers) <= 4
    assert all(64 <= layer.memories <= 256 for layer in seen.layers)
    assert seen.hidden_size == 32


def assert_exact(seen: LanguageModel) -> None:
    found = seen.identity
    assert found.memories <= 1e-5
    assert found.residual <= 1e-5
    assert found.head <= 1e-5
    assert found.activation <= 1e-5
    assert found.causal <= 1e-5
    assert_head_on_other_tokens(seen)


@torch.no_grad()
def assert_head_on_other_tokens(seen: LanguageModel) -> None:
    """On tokens that `see` has not used, the last block's output leads to the model's logits."""
    tokens = torch.tensor([[5, 99, 17, 3, 200, 42, 8, 131, 64, 77, 250]])
    kept: list[torch.Tensor] = []

    def keep(_module: torch.nn.Module, _args: object, output: object) -> None:
        tensor = first_tensor(output)
        assert tensor is not None
        kept.append(tensor.clone())

    hook = seen.layers[-1].block.register_forward_hook(keep)
    expected = seen.model(input_ids=tokens, use_cache=False).logits
    hook.remove()
    found = state_logits(seen.head, kept[0])
    assert_best(found.argmax(-1), expected)
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)
