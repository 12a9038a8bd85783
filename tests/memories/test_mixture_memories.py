"""Edits and attribution in a mixture of experts, against models whose weights say the same."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.memories.attribution import contributions
from ffmem.memories.edits import Edit, edited
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.models.experts.routing import experts_in
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

TEXT = "the river runs"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return wrap(tiny_model("qwen2_moe"), tiny_tokenizer())


def logits(model: LanguageModel) -> torch.Tensor:
    with torch.no_grad():
        return model.model(model.encode(TEXT)).logits


@pytest.mark.parametrize(
    ("edit", "part", "columns"),
    [("L2.E1=0", "E1", slice(None)), ("L2.E1.3=0", "E1", 3), ("L2.S.5=0", "S", 5)],
)
def test_a_memory_or_expert_at_0_is_one_without_a_value(
    model: LanguageModel, edit: str, part: str, columns: slice | int
) -> None:
    inner = deepcopy(model.model)
    mlp = inner.model.layers[1].mlp
    with torch.no_grad():
        if part == "S":
            mlp.shared_expert.down_proj.weight[:, columns] = 0
        else:
            mlp.experts.down_proj[1][:, columns] = 0
        expected = inner(model.encode(TEXT)).logits
    before = logits(model)
    with edited(model, [edit]):
        found = logits(model)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    torch.testing.assert_close(logits(model), before)


@pytest.mark.parametrize(
    ("kind", "shared"),
    [("axk1", "mlp.shared_experts.down_proj"), ("granitemoehybrid", "shared_mlp.output_linear")],
)
@pytest.mark.parametrize("edit", ["L2.E1=0", "L2.S.5=0"])
def test_sums_that_end_elsewhere_than_their_module_are_edited_too(
    kind: str, shared: str, edit: str
) -> None:
    """Behind a norm inside the mixture, and beside a dense layer that the block adds."""
    model = wrap(tiny_model(kind), tiny_tokenizer())
    inner = deepcopy(model.model)
    block = inner.model.layers[1]
    with torch.no_grad():
        if "S" in edit:
            block.get_submodule(shared).weight[:, 5] = 0
        else:
            experts_in(block)[0].down_proj[1] = 0
        expected = inner(model.encode(TEXT)).logits
    before = logits(model)
    with edited(model, [edit]):
        found = logits(model)
        view = explain_prompt(model, TEXT)  # which reads values through the norm behind them
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(view.distribution, expected[0, -1, :259].softmax(-1))
    assert not torch.allclose(found, before, atol=1e-3)


def test_a_memory_is_held_at_a_number_where_its_expert_is_not_chosen_too(
    model: LanguageModel,
) -> None:
    reading = record(model, TEXT, "mwyr").layer(3)
    expert = int((reading.w[0, :, :4] == 0).sum(0).argmax())
    address = Address(3, 7, "", f"E{expert}")
    index = model.index_of(address)
    with edited(model, [Edit(address, "set", 2.0)]):
        changed = record(model, TEXT, "my").layer(3)
    assert (changed.m[..., index] == 2.0).all()
    value = reading.layer.values[index]
    expected = reading.y + (2.0 - reading.m[..., index, None]) * value
    torch.testing.assert_close(changed.y, expected, rtol=1e-4, atol=1e-5)
    with edited(model, [Edit(address, "scale", 3.0)]):
        scaled = record(model, TEXT, "m").layer(3)
    torch.testing.assert_close(scaled.m[..., index], 3 * reading.m[..., index])


def test_edits_at_some_positions_and_in_generation(model: LanguageModel) -> None:
    before = record(model, TEXT, "m").layer(1).m
    with edited(model, [Edit(Address(1, 2, "", "S"), "set", 1.5, positions=(3,))]):
        m = record(model, TEXT, "m").layer(1).m
    index = model.index_of(Address(1, 2, "", "S"))
    assert m[0, 3, index] == 1.5
    torch.testing.assert_close(m[0, :3], before[0, :3])
    tokens = model.encode(TEXT)
    edits = [Edit(Address(1, 2, "", "S"), "set", 30.0), Edit(Address(2, 3, "", "E1"), "set", 30.0)]
    with torch.no_grad(), edited(model, edits):
        for cached in (True, False):
            written = model.model.generate(
                tokens,
                max_new_tokens=4,
                min_new_tokens=4,
                do_sample=False,
                use_cache=cached,
                output_logits=True,
                return_dict_in_generate=True,
            )
            whole = model.model(written.sequences[:, :-1]).logits[:, -4:]
            found = torch.stack(written.logits, dim=1)
            torch.testing.assert_close(found, whole, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "kind", ["gpt_oss", "deepseek_v3", "qwen2_moe", "axk1", "granitemoehybrid"]
)
def test_a_logit_is_a_sum_over_experts_and_their_weighted_biases(kind: str) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer())
    view = explain_prompt(model, TEXT)
    found = contributions(model, view.records, view.likeliest(1)[0])
    assert found.total == pytest.approx(found.logit, rel=1e-4, abs=1e-5)
    assert max(abs(part.rest) for part in found.layers) < 1e-4 * max(1, abs(found.logit))
    if kind == "gpt_oss":
        assert all(part.bias for part in found.layers)
    strongest = found.layers[-1].strongest[0]
    assert strongest.address.part
    assert found.of(strongest.address) == pytest.approx(strongest.amount)


def test_an_address_of_another_part_is_refused_with_what_to_write(model: LanguageModel) -> None:
    with pytest.raises(AddressError, match=r"E0 to E3 and S, so name one of them, as in L2\.E0\.3"):
        model.layer_of(Address.parse("L2.3"))
    with pytest.raises(AddressError, match=r"L2\.E1 has memories 0 to 15"):
        model.layer_of(Address.parse("L2.E1.16"))
    with pytest.raises(AddressError, match="E0 to E3"), edited(model, ["L2.E4=0"]):
        pass
    dense = wrap(tiny_model("llama"))
    with pytest.raises(AddressError, match=r"no experts, so write L2\.3"):
        dense.layer_of(Address.parse("L2.E0.3"))
