"""A model that the user has: its mode stays, dropout never counts, adapters are understood."""

from __future__ import annotations

import pytest
import torch

from ffmem.errors import ModelError
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import float32_copy, wrap

TEXT = "the river runs"


def test_a_model_in_training_stays_in_training_and_is_read_without_dropout() -> None:
    inner = tiny_model("opt", dropout=0.5)
    expected = record(wrap(inner, tiny_tokenizer()), TEXT, "m")
    inner.train()
    inner.lm_head.eval()  # a module's own mode is kept too
    model = wrap(inner, tiny_tokenizer())
    assert inner.training
    for found, one in zip(record(model, TEXT, "m"), expected, strict=True):
        torch.testing.assert_close(found.m, one.m)
    explain_prompt(model, TEXT)
    model.generate(TEXT, 3, 2)
    modes = {name: module.training for name, module in inner.named_modules()}
    assert not modes.pop("lm_head")
    assert all(modes.values())


def test_the_mode_comes_back_after_a_refusal() -> None:
    inner = tiny_model("opt").train()
    inner.model.decoder.layers = torch.nn.ModuleList()
    with pytest.raises(ModelError):
        wrap(inner)
    assert inner.training


def test_a_model_says_what_it_is() -> None:
    model = wrap(tiny_model("opt"), tiny_tokenizer(), "mine")
    expected = f"<LanguageModel mine: opt, {len(model.layers)} layers, {model.memories:,} memories,"
    assert repr(model).startswith(expected)


def test_a_name_is_not_a_model() -> None:
    with pytest.raises(ModelError, match=r"not 'gpt2'; load one by its name with ffmem\.load"):
        wrap("gpt2")  # type: ignore[arg-type]


def test_adapters_in_attention_are_seen_through() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed; `pip install peft`")
    inner = tiny_model("llama")
    plain = record(wrap(inner, tiny_tokenizer()), TEXT, "m")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(inner, config)
    model = wrap(adapted, tiny_tokenizer())
    assert not torch.allclose(record(model, TEXT, "m").layer(1).m, plain["L1"].m)
    expected = adapted(model.encode(TEXT)).logits
    torch.testing.assert_close(model.model(model.encode(TEXT)).logits, expected)


def test_a_learned_prompt_is_refused() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed; `pip install peft`")
    config = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    with pytest.raises(ModelError, match=r"pass its get_base_model\(\)"):
        wrap(peft.get_peft_model(tiny_model("llama"), config))


def test_a_copy_in_32_bits_holds_the_same_weights_and_leaves_the_model_alone() -> None:
    model = load("tiny:llama", dtype="bfloat16")
    copy = float32_copy(model)
    assert (model.dtype, copy.dtype) == (torch.bfloat16, torch.float32)
    assert copy.model is not model.model
    for one, other in zip(model.model.parameters(), copy.model.parameters(), strict=True):
        assert one.dtype == torch.bfloat16
        assert torch.equal(one.float(), other)
    assert float32_copy(copy) is copy


def test_a_model_whose_copy_has_no_room_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("tiny:llama", dtype="bfloat16")
    spread = {"model": 0, "lm_head": "cpu"}
    monkeypatch.setattr(model.model, "hf_device_map", spread, raising=False)
    assert float32_copy(model) is model


def test_of_a_compiled_model_the_original_is_used() -> None:
    model = tiny_model("llama")
    assert wrap(torch.compile(model)).model is model


def test_a_model_compiled_in_place_is_refused() -> None:
    model = tiny_model("opt")
    model.compile()
    with pytest.raises(ModelError, match="the model is compiled, so .*before compilation"):
        wrap(model)
