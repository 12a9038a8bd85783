"""Quantised layers and layers with adapters: what is read is what the running layer does.

The model to compare with is the same one with plain numbers in all places: dequantised, merged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

import ffmem
from ffmem.cli.commands.model import describe
from ffmem.errors import ModelError
from ffmem.memories.attribution import contributions
from ffmem.memories.edits import Edit, edited
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_tokens
from ffmem.models import effective_weights
from ffmem.models.families import FAMILIES
from ffmem.models.feedforward import EffectivePart, LinearPart
from ffmem.models.fingerprint import content_digest, weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.patches import ValueChange, write_patch
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import QUANTISED_TOLERANCE, float32_copy, wrap
from tests.analyses.conftest import lines

TEXT = "the river runs"
Pack = Callable[[nn.Linear], nn.Module]
OLD_TORCH = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Packed(nn.Module):
    """A linear map in 8 bits without a `weight`, as GPTQ and its like have none."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        scale = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("scales", scale)
        self.register_buffer("qweight", (linear.weight.detach() / scale).round().to(torch.int8))
        self.bias = linear.bias

    def numbers(self) -> Tensor:
        """The weight that it stands for."""
        return self.qweight.to(self.scales.dtype) * self.scales

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.numbers(), self.bias)


class Packed8(Packed):
    """The same with float8 numbers under the usual name, as in FP8 checkpoints."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = (linear.weight.detach() / self.scales).to(torch.float8_e4m3fn)
        self.weight = nn.Parameter(weight, requires_grad=False)

    def numbers(self) -> Tensor:
        return self.weight.to(self.scales.dtype) * self.scales


class Coarse(Packed):
    """Rounds what enters it to three bits, so that it is far from linear."""

    def forward(self, x: Tensor) -> Tensor:
        step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-6) / 3
        return super().forward((x / step).round() * step)


class Adapter(nn.Module):
    """A low-rank adapter with dropout, in the form that those of PEFT have."""

    def __init__(self, base: nn.Module, rank: int = 2) -> None:
        super().__init__()
        self.base_layer, self.scaling = base, {"default": 2.0}
        self.dropout = nn.Dropout(0.5)
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        beside: Tensor = self.b(self.a(self.dropout(x))) * self.scaling["default"]
        whole: Tensor = self.base_layer(x) + beside
        return whole

    def numbers(self) -> Tensor:
        base = self.base_layer
        own = base.numbers() if isinstance(base, Packed) else base.weight
        return own + self.scaling["default"] * self.b.weight @ self.a.weight


def over_packed(linear: nn.Linear) -> Adapter:
    """An adapter over a quantised map, as QLoRA has it."""
    return Adapter(Packed(linear))


def replace_maps(model: PreTrainedModel, pack: Pack, parts: str = "") -> PreTrainedModel:
    """The model with another module in the place of linear maps whose names have this in them."""
    torch.manual_seed(1)
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and parts in name:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, pack(module).eval())
    return model


def untied(kind: str) -> PreTrainedModel:
    """A toy whose output embedding can be quantised by itself."""
    return tiny_model(kind, tie_word_embeddings=False)


@torch.no_grad()
def plain_copy(model: PreTrainedModel, packed: PreTrainedModel) -> PreTrainedModel:
    """A fresh copy of the model with the numbers that another one's packed maps stand for."""
    for name, module in packed.named_modules():
        if isinstance(module, Packed | Adapter) and "base_layer" not in name:
            model.get_submodule(name).weight.copy_(module.numbers())
    return model


def close(one: Tensor | None, other: Tensor | None) -> None:
    if one is None or other is None:
        assert one is other
    else:
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def same_memories(one: LanguageModel, other: LanguageModel) -> None:
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        close(mine.keys, theirs.keys)
        close(mine.values, theirs.values)
        close(mine.values_at([5, 2]), theirs.values[[5, 2]])
        close(mine.gate_keys, theirs.gate_keys)
        close(mine.value_bias, theirs.value_bias)
        assert (mine.memories, mine.width) == (theirs.memories, theirs.width)
        assert mine.parameters == theirs.parameters


def same_answers(one: LanguageModel, other: LanguageModel) -> None:
    for mine, theirs in zip(record(one, TEXT, "my"), record(other, TEXT, "my"), strict=True):
        close(mine.m, theirs.m)
        close(mine.y, theirs.y)
    found = contributions(one, explain_prompt(one, TEXT).records, 7)
    expected = contributions(other, explain_prompt(other, TEXT).records, 7)
    assert found.logit == pytest.approx(expected.logit, abs=1e-4)
    assert found.total == pytest.approx(found.logit, abs=1e-4)
    for mine, theirs in zip(found.layers, expected.layers, strict=True):
        close(mine.terms, theirs.terms)
    close(*(value_tokens(model, "L2.3", 5).probabilities for model in (one, other)))
    for embed in ("output", "input"):
        close(*(model.head.vectors(embed).bands[0].rows for model in (one, other)))


@pytest.mark.parametrize("pack", [Packed, Packed8, Adapter, over_packed])
@pytest.mark.parametrize("kind", ["llama", "opt", "phi3"])  # gated, with biases, fused
def test_memories_are_those_of_the_plain_model(kind: str, pack: Pack) -> None:
    inner = replace_maps(untied(kind), pack)
    model = wrap(inner, tiny_tokenizer())
    expected = wrap(plain_copy(untied(kind), inner), tiny_tokenizer())
    assert all(isinstance(part, EffectivePart) for layer in model.layers for part in layer.maps)
    same_memories(model, expected)
    same_answers(model, expected)


def test_shared_experts_are_read_through_the_layer() -> None:
    inner = replace_maps(tiny_model("qwen2_moe"), Packed, "shared_expert.")
    model, expected = wrap(inner), wrap(plain_copy(tiny_model("qwen2_moe"), inner))
    assert len(model.layers[0].effective_parts) == 3
    for mine, theirs in zip(model.layers, expected.layers, strict=True):
        torch.testing.assert_close(mine.keys, theirs.keys)
        torch.testing.assert_close(mine.values, theirs.values)
        last = mine.memories - 1
        torch.testing.assert_close(mine.values_at([0, last]), theirs.values[[0, last]])
        assert mine.parameters == theirs.parameters


def test_a_scan_is_that_of_the_plain_model(tmp_path: Path) -> None:
    inner = replace_maps(tiny_model("llama"), over_packed)
    models = {"packed": inner, "plain": plain_copy(tiny_model("llama"), inner)}
    stores = [
        ffmem.run_scan(
            wrap(model, tiny_tokenizer()), lines(40, 1), tmp_path / name, top=3, splitter="line"
        ).store
        for name, model in models.items()
    ]
    for name in ("largest", "totals"):
        found, expected = (store.array(name) for store in stores)
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=1e-2)


def test_plain_maps_stay_views_of_the_weights() -> None:
    inner = tiny_model("llama")
    layer = wrap(inner).layers[0]
    assert {type(part) for part in layer.maps} == {LinearPart}
    assert layer.values.data_ptr() == inner.model.layers[0].mlp.down_proj.weight.data_ptr()


def test_dropout_of_an_adapter_never_counts_and_the_mode_stays() -> None:
    inner = replace_maps(tiny_model("llama"), Adapter, "mlp")
    expected = wrap(plain_copy(tiny_model("llama"), inner))
    inner.train()
    model = wrap(inner)
    same_memories(model, expected)
    assert all(module.training for module in inner.modules())
    inner.eval()
    inner.model.layers[1].mlp.up_proj.train()  # as adapters are that were put into a loaded model
    same_memories(wrap(inner), expected)
    assert inner.model.layers[1].mlp.up_proj.dropout.training


def test_values_follow_the_adapter() -> None:
    inner = replace_maps(tiny_model("llama"), Adapter, "mlp")
    model = wrap(inner)
    before = model.layers[0].values.clone()
    assert model.layers[0].values is not before
    inner.model.layers[0].mlp.down_proj.scaling["default"] = -1.0
    same_memories(model, wrap(plain_copy(tiny_model("llama"), inner)))
    assert not torch.allclose(model.layers[0].values, before)


def test_rows_are_read_once_while_the_layer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, questions = Packed(nn.Linear(64, 8)), []
    monkeypatch.setattr(
        layer, "forward", lambda x: questions.append(x.shape[1]) or Packed.forward(layer, x)
    )
    first = effective_weights.read_rows(layer, 64, torch.float32)
    assert 64 in questions
    questions.clear()
    assert effective_weights.read_rows(layer, 64, torch.float32) is first
    assert 64 not in questions
    monkeypatch.setattr(effective_weights, "CACHE", 0)
    layer.scales.mul_(2)
    again = effective_weights.read_rows(layer, 64, torch.float32)
    torch.testing.assert_close(again, 2 * first)
    assert effective_weights.read_rows(layer, 64, torch.float32) is not again


def test_a_change_of_one_weight_is_seen_that_no_answer_shows() -> None:
    """In 16 bits a sum over many inputs is too coarse for it."""
    layer = nn.Linear(512, 8, bias=False).bfloat16()
    nn.init.ones_(layer.weight)
    for row, place in enumerate((0, 5, 77, 511)):
        before = effective_weights.read_rows(layer, 512, torch.bfloat16)
        layer.weight.data[row, place] = 1.0078125  # the next number there is
        after = effective_weights.read_rows(layer, 512, torch.bfloat16)
        assert (before != after).nonzero().tolist() == [[place, row]]


@pytest.mark.parametrize("pack", [Packed, Adapter, over_packed])
def test_a_large_bias_takes_no_digits_from_the_weights(pack: Pack) -> None:
    linear = nn.Linear(64, 8).bfloat16()
    nn.init.constant_(linear.bias, 100.0)
    torch.manual_seed(4)
    layer = pack(linear).bfloat16()
    rows = effective_weights.read_rows(layer, 64, torch.bfloat16)
    torch.testing.assert_close(rows, layer.numbers().T, rtol=2e-2, atol=2e-3)
    bias = effective_weights.read_bias(layer, 64, torch.bfloat16)
    assert bias is not None
    assert bias.tolist() == linear.bias.tolist() == [100.0] * 8


class NeverEmpty(Packed):
    """Cannot multiply with nothing, as some quantised layers cannot."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.numel()
        return super().forward(x)


def test_values_of_no_memories() -> None:
    layer = wrap(replace_maps(tiny_model("opt"), NeverEmpty, "fc2")).layers[0]
    assert layer.values_at([]).shape == (0, 32)  # from those that are kept
    effective_weights._cache.clear()
    assert layer.values_at([]).shape == (0, 32)
    mixture = wrap(replace_maps(tiny_model("qwen2_moe"), NeverEmpty, "shared_expert.")).layers[0]
    effective_weights._cache.clear()
    torch.testing.assert_close(mixture.values_at([0, 3]), mixture.values[[0, 3]])


def test_values_are_those_of_the_layer_inside_an_edit_too() -> None:
    model = wrap(replace_maps(tiny_model("llama"), Packed), tiny_tokenizer())
    layer, prompt = model.layers[1], model.encode(TEXT)
    before, plain_m = layer.values.clone(), record(model, TEXT, "m").layer(2).m
    effective_weights._cache.clear()
    with edited(model, [Edit.parse("L2.3=0")]):
        torch.testing.assert_close(layer.values, before)
        torch.testing.assert_close(layer.values_at([3]), before[[3]])
        silent = model.model(prompt).logits
    assert plain_m[..., 3].abs().max() > 0
    assert not torch.allclose(silent, model.model(prompt).logits)


def test_a_layer_far_from_linear_is_refused_in_one_sentence() -> None:
    message = r"\(relative error .*\), perhaps because its quantised layers round .* dequantize"
    with pytest.raises(ModelError, match=f"do not add up to .*{message}"):
        wrap(replace_maps(tiny_model("llama"), Coarse, "down_proj"))
    with pytest.raises(ModelError, match=f"into coefficients {message}"):
        wrap(replace_maps(tiny_model("opt"), Coarse, "fc1"))
    with pytest.raises(ModelError, match=f"to the model's logits {message}"):
        wrap(replace_maps(tiny_model("llama"), Coarse, "lm_head"))


class Picky(Packed):
    """Runs inside its model only."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 2:
            raise RuntimeError("batch of another size.")
        return super().forward(x)


def test_a_layer_that_does_not_run_by_itself_is_refused_in_one_sentence() -> None:
    with pytest.raises(
        ModelError, match=r"type Picky cannot be read .* \(batch of another size\); pass a model"
    ):
        wrap(replace_maps(tiny_model("llama"), Picky, "up_proj"))


def test_an_unknown_architecture_is_read_past_the_parts_of_its_adapters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any training an adapter adds nothing, so that what is inside looks the same."""
    monkeypatch.delitem(FAMILIES, "llama")
    inner = replace_maps(tiny_model("llama"), Adapter, "mlp")
    for name, part in inner.named_parameters():
        if name.endswith(".b.weight"):
            nn.init.zeros_(part)
    model = wrap(inner)
    assert model.known_by == "structure"
    assert model.layers[0].value_map.module is inner.model.layers[0].mlp.down_proj
    assert model.layers[0].key_map.module is inner.model.layers[0].mlp.up_proj


class AroundExperts(nn.Module):
    """An adapter around the experts of a layer, as PEFT puts it there."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base_layer = base

    def forward(self, *args: Any) -> Any:
        return self.base_layer(*args)


def test_adapters_on_experts_are_to_be_merged_first() -> None:
    inner = tiny_model("mixtral")
    inner.model.layers[1].mlp.experts = AroundExperts(inner.model.layers[1].mlp.experts)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.experts.*call merge_and_unload\(\)"):
        wrap(inner)


class Rows(Tensor):
    """A tensor of a class of its own, as quantised weights of torchao are."""


def test_quantised_experts_are_refused() -> None:
    inner = tiny_model("mixtral")
    experts = inner.model.layers[1].mlp.experts
    stack = experts.down_proj.data.as_subclass(Rows)
    experts.down_proj = nn.Parameter(stack, requires_grad=False)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.experts are quantised"):
        wrap(inner)


def test_a_digest_tells_adapters_and_quantised_weights_apart() -> None:
    models = [tiny_model("llama"), replace_maps(tiny_model("llama"), Adapter, "mlp")]
    models.append(replace_maps(tiny_model("llama"), Adapter, "mlp"))
    models[-1].model.layers[2].mlp.up_proj.scaling["default"] = 1.0
    models.append(replace_maps(tiny_model("llama"), Packed))
    models.append(replace_maps(tiny_model("llama"), Packed))
    models[-1].model.layers[0].self_attn.q_proj.scales[3] *= 1.01
    models.append(replace_maps(tiny_model("llama"), Packed8))
    for digest in (weights_digest, content_digest):
        found = [digest(model) for model in models]
        assert len(set(found)) == len(models)
        assert digest(replace_maps(tiny_model("llama"), Packed)) == found[3]


class Scales(dict[str, Tensor]):
    """The scales of a layer in the form that bitsandbytes has them."""

    def as_dict(self, packed: bool) -> dict[str, Tensor]:
        assert packed
        return dict(self)


class ChangedBySaving(Packed):
    """A layer that saves other numbers than it had, as bitsandbytes has them on some CPUs."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.weight = nn.Parameter(self.qweight.clone(), requires_grad=False)
        self.weight.quant_state = Scales(absmax=self.scales[:, 0].clone())

    def _save_to_state_dict(self, *args: Any) -> None:
        self.scales *= 1.01
        super()._save_to_state_dict(*args)


def test_a_digest_does_not_change_the_layer() -> None:
    inner = replace_maps(tiny_model("llama"), ChangedBySaving, "mlp")
    layer = inner.model.layers[0].mlp.down_proj
    before = layer.numbers().clone()
    for digest in (weights_digest, content_digest):
        first = digest(inner)
        assert digest(inner) == first
        layer.weight.quant_state["absmax"][2] *= 2
        assert digest(inner) != first
    torch.testing.assert_close(layer.numbers(), before, rtol=0, atol=0)


def test_inspect_names_what_is_read_through_the_layer() -> None:
    assert "weights read" not in describe(wrap(tiny_model("llama")))
    expected = describe(wrap(tiny_model("llama")))
    found = describe(wrap(replace_maps(tiny_model("llama"), Packed)))
    said = "through the layer (quantised): 3 of 3 layers, the output embedding"
    assert found["weights read"] == said
    assert found["parameters"] == expected["parameters"]
    assert found["of the blocks alone"] == expected["of the blocks alone"]
    adapted = describe(wrap(replace_maps(tiny_model("llama"), Adapter, "layers.1.mlp.up_proj")))
    assert adapted["weights read"] == "through the layer (with adapters): 1 of 3 layers"


def test_values_that_are_copies_cannot_be_patched(tmp_path: Path) -> None:
    model = wrap(replace_maps(tiny_model("llama"), Adapter, "mlp"))
    with pytest.raises(ModelError, match=r"layer 1 are quantised .* merge_and_unload\(\)"):
        write_patch(model, {1: ValueChange({3: 0.0}, {})}, ["L1.3=0"], tmp_path / "patch")
    assert not (tmp_path / "patch").exists()


def test_a_quantised_model_is_not_copied_to_32_bits() -> None:
    model = wrap(replace_maps(tiny_model("llama").bfloat16(), Packed))
    assert model.dtype == torch.bfloat16
    assert float32_copy(model) is model
    adapted = wrap(replace_maps(tiny_model("llama"), Adapter, "mlp").bfloat16())
    assert float32_copy(adapted).dtype == torch.float32


@OLD_TORCH
def test_a_dynamically_quantised_model_is_read_within_its_rounding() -> None:
    inner = torch.ao.quantization.quantize_dynamic(tiny_model("opt"), {nn.Linear}, torch.qint8)
    model = wrap(inner, tiny_tokenizer())
    assert 1e-4 < model.identity.memories < QUANTISED_TOLERANCE
    for layer, block in zip(model.layers, inner.model.decoder.layers, strict=True):
        weight = block.fc2.weight().dequantize()
        torch.testing.assert_close(layer.values, weight.T, rtol=2e-2, atol=2e-3)
    found = contributions(model, explain_prompt(model, TEXT).records, 7)
    assert found.total == pytest.approx(found.logit, abs=1e-3)


@OLD_TORCH
def test_a_quantised_mixture_is_read_and_says_that_its_experts_are_not_quantised() -> None:
    """Quantisers look for linear maps and pass over the experts' stacks."""
    inner = torch.ao.quantization.quantize_dynamic(tiny_model("mixtral"), {nn.Linear}, torch.qint8)
    model = wrap(inner)
    assert "not quantised, as other weights are, but in float32" in describe(model)["experts"]
    assert model.identity.memories < 1e-4


def peft_config(method: str, **options: Any) -> Any:
    """A config of PEFT whose adapters change the model from the start."""
    peft = pytest.importorskip("peft", reason="peft is not installed; `pip install peft`")
    maps = ["up_proj", "down_proj", "q_proj"]
    match method:
        case "ia3":
            settings = {"target_modules": maps, "feedforward_modules": ["down_proj"]}
            return peft.IA3Config(**settings, init_ia3_weights=False)
        case "loha":
            return peft.LoHaConfig(r=2, target_modules=maps, init_weights=False)
    options = {"target_modules": maps, "lora_dropout": 0.5, **options}
    return peft.LoraConfig(r=2, init_lora_weights=False, use_dora=method == "dora", **options)


def adapt(kind: str, method: str = "lora", **options: Any) -> Any:
    """A toy with adapters of PEFT, in training mode; of IA3 the factors are drawn too."""
    peft = pytest.importorskip("peft", reason="peft is not installed; `pip install peft`")
    torch.manual_seed(3)
    model = peft.get_peft_model(untied(kind), peft_config(method, **options))
    for name, parameter in model.named_parameters():
        if "ia3" in name or "modules_to_save" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return model.train()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lora", {}),
        ("dora", {}),
        ("ia3", {}),
        ("loha", {}),
        ("lora", {"target_modules": ["down_proj", "lm_head"]}),
        ("lora", {"target_modules": ["gate_proj", "embed_tokens"]}),
        ("lora", {"modules_to_save": ["lm_head", "embed_tokens"]}),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_adapters_of_peft_are_read_as_if_merged(method: str, options: dict[str, Any]) -> None:
    adapted = adapt("llama", method, **options)
    model = wrap(adapted, tiny_tokenizer())
    assert model.layers[0].effective_parts
    merged = copy.deepcopy(adapted).merge_and_unload()
    expected = wrap(merged, tiny_tokenizer())
    same_memories(model, expected)
    same_answers(model, expected)
    assert adapted.training
    assert "with adapters" in describe(model)["weights read"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_adapter_on_an_embedding_that_scales_its_rows() -> None:
    adapted = adapt("gemma3_text", target_modules=["embed_tokens"])
    expected = wrap(copy.deepcopy(adapted).merge_and_unload())
    rows = (model.head.vectors("input").bands[0].rows for model in (wrap(adapted), expected))
    close(*rows)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_second_copy_of_a_whole_layer_is_to_be_merged_first() -> None:
    adapted = adapt("llama", target_modules=["q_proj"], modules_to_save=["mlp"])
    with pytest.raises(ModelError, match=r"no feed-forward layer .*call merge_and_unload\(\)"):
        wrap(adapted)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_adapter_that_is_on_counts() -> None:
    adapted = adapt("llama")
    adapted.add_adapter("second", peft_config("lora", lora_alpha=3))
    model, digests = wrap(adapted), {weights_digest(adapted.get_base_model())}
    first = model.layers[0].values.clone()
    adapted.set_adapter("second")
    digests.add(weights_digest(adapted.get_base_model()))
    same_memories(model, wrap(copy.deepcopy(adapted).merge_and_unload()))
    assert not torch.allclose(model.layers[0].values, first)
    with adapted.disable_adapter():
        digests.add(weights_digest(adapted.get_base_model()))
        same_memories(model, wrap(untied("llama")))
    adapted.set_adapter("default")
    close(model.layers[0].values, first)
    assert len(digests) == 3


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_adapters_of_peft_on_experts_are_refused() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed; `pip install peft`")
    config = peft.LoraConfig(
        r=2, target_modules=[], target_parameters=["mlp.experts.down_proj"], init_lora_weights=False
    )
    adapted = peft.get_peft_model(tiny_model("mixtral"), config)
    with pytest.raises(ModelError, match=r"call merge_and_unload\(\)"):
        wrap(adapted)


def torchao_weights(model: PreTrainedModel) -> None:
    ao = pytest.importorskip("torchao.quantization", reason="`pip install torchao`")
    ao.quantize_(model, ao.Int8WeightOnlyConfig())


def torchao_both(model: PreTrainedModel) -> None:
    ao = pytest.importorskip("torchao.quantization", reason="`pip install torchao`")
    ao.quantize_(model, ao.Int8DynamicActivationInt8WeightConfig())


def quanto(model: PreTrainedModel) -> None:
    module = pytest.importorskip("optimum.quanto", reason="`pip install optimum-quanto`")
    module.quantize(model, weights=module.qint4)
    module.freeze(model)


def bitsandbytes(model: PreTrainedModel, kind: str, **options: Any) -> None:
    nn_of = pytest.importorskip("bitsandbytes", reason="`pip install bitsandbytes`").nn

    def pack(linear: nn.Linear) -> nn.Module:
        sizes = (linear.in_features, linear.out_features, linear.bias is not None)
        packed: nn.Module = getattr(nn_of, kind)(*sizes, **options)
        packed.load_state_dict(linear.state_dict())
        packed.support_avx512bf16_for_cpu = False  # for wide layers only, where a CPU has it
        return packed.to("cpu")

    replace_maps(model, pack, "layers")


def four_bits(model: PreTrainedModel) -> None:
    bitsandbytes(model, "Linear4bit", quant_type="nf4", compute_dtype=torch.float32)


def eight_bits(model: PreTrainedModel) -> None:
    bitsandbytes(model, "Linear8bitLt", has_fp16_weights=False, threshold=6.0)


QUANTISERS = [torchao_weights, torchao_both, quanto, four_bits, eight_bits]


@pytest.mark.parametrize("quantise", QUANTISERS)
@pytest.mark.parametrize("kind", ["llama", "opt", "phi3"])
@pytest.mark.filterwarnings("ignore")
def test_quantised_models_are_read_through_their_layers(
    kind: str, quantise: Callable[[PreTrainedModel], None]
) -> None:
    """Near the model before quantisation, and linear: y is the sum of coefficients x values.

    No map has fewer than 64 inputs, the numbers that bitsandbytes gives one scale.
    """
    wide = dict.fromkeys(("hidden_size", "word_embed_proj_dim"), 64)
    inner, original = (
        tiny_model(kind, tie_word_embeddings=False, head_dim=16, **wide) for _ in range(2)
    )
    before = wrap(original)
    quantise(inner)
    digest = weights_digest(inner)
    model = wrap(inner, tiny_tokenizer())
    assert weights_digest(inner) == digest != weights_digest(before.model)
    assert model.identity.memories < QUANTISED_TOLERANCE
    assert "quantised" in describe(model)["weights read"]
    rough = 0.2 if quantise in (quanto, four_bits) else 0.02
    for mine, theirs in zip(model.layers, before.layers, strict=True):
        for one, other in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
            assert 0 < (one - other).norm() / other.norm() < rough
    found = contributions(model, explain_prompt(model, TEXT).records, 7)
    assert found.total == pytest.approx(found.logit, abs=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_a_digest_knows_how_torchao_computes() -> None:
    models = [untied("llama"), untied("llama")]
    for model, quantise in zip(models, (torchao_weights, torchao_both), strict=True):
        quantise(model)
    assert weights_digest(models[0]) != weights_digest(models[1])
    assert content_digest(models[0]) != content_digest(models[1])


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_of_peft_over_four_bits_is_read() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed; `pip install peft`")
    inner = untied("llama")
    four_bits(inner)
    values = wrap(inner).layers[0].values.clone()
    adapted = peft.get_peft_model(inner, peft_config("lora"))
    model = wrap(adapted, tiny_tokenizer())
    down = inner.model.layers[0].mlp.down_proj
    close(model.layers[0].values, values + down.get_delta_weight("default").T)
    assert model.identity.memories < 1e-3
