"""A logit as a sum: its parts add up to what the model itself says, in every form of block."""

from __future__ import annotations

import re

import pytest
import torch

import ffmem
from ffmem.errors import AddressError, FfmemError, ModelError
from ffmem.memories.attribution import contributions
from ffmem.memories.edits import edited
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

TEXT = "the river and the stone"


def own_logits(model: LanguageModel) -> torch.Tensor:
    """What the model says itself, after the whole text."""
    with torch.no_grad():
        return model.model(input_ids=model.encode(TEXT)).logits[0, -1]


def test_parts_add_up_to_the_models_own_logit(toy: LanguageModel) -> None:
    expected = own_logits(toy)
    view = explain_prompt(toy, TEXT)
    for token in (3, int(expected.argmax())):
        found = contributions(toy, view.records, token)
        assert found.total == pytest.approx(found.logit, abs=1e-4)
        if toy.head.softcap is None:
            assert found.total == pytest.approx(float(expected[token]), abs=1e-4)
        assert [part.layer for part in found.layers] == [layer.number for layer in toy.layers]
        for part in found.layers:
            assert abs(part.rest) < 1e-4, "nothing is left unexplained"


def test_contributions_show_themselves(gated: LanguageModel) -> None:
    token = gated.encode("<")[0, -1].item()
    found = contributions(gated, explain_prompt(gated, TEXT).records, int(token))
    first = found.strongest(1)[0]
    assert repr(found).startswith(f"<Contributions to the logit {found.logit:.3f} of '<': ")
    assert f"{first.address} {first.amount:+.3f}" in repr(found)
    page = found._repr_html_()
    assert f"logit {found.logit:.3f} of <b>&lt;</b>" in page
    assert page.count("<tr>") == 1 + len(gated.layers)
    assert f"{first.address} {first.amount:+.3f}" in page


def test_a_term_is_found_by_the_address_as_text(gated: LanguageModel) -> None:
    found = contributions(gated, explain_prompt(gated, TEXT).records, 5)
    memory = found.strongest(1)[0]
    assert found.of(str(memory.address)) == found.of(memory.address) == memory.amount
    with pytest.raises(AddressError, match="no layer 99; its layers are 1 to"):
        found.of("L99.0")


def test_an_explanation_and_the_text_of_a_token_will_do(gated: LanguageModel) -> None:
    view = explain_prompt(gated, TEXT)
    token = int(gated.encode("<")[0, -1])
    found = contributions(gated, view, "<")
    assert found.token == token
    assert found.total == contributions(gated, view.records, token).total
    with pytest.raises(FfmemError, match="is not one token of"):
        contributions(gated, view, "")


def test_a_text_names_the_token_that_gives_it_back() -> None:
    demo, toy = ffmem.load("demo"), ffmem.load("tiny:opt")
    for model, texts in ((demo, [")", ",", "'s", "\n", "é", " river", "</s>"]), (toy, [")", " "])):
        assert [model.token_text(model.token_id(text)) for text in texts] == texts
    assert demo.token_text(demo.token_id("river")) == " river"
    for text, pieces in (("foo bar", "4 (' f', 'o', 'o', ' bar')"), ("Qz", "2 (' Q', 'z')")):
        with pytest.raises(FfmemError, match=re.escape(f"not one token of demo, but {pieces};")):
            demo.token_id(text)
    for text in ("\ud800", ""):
        with pytest.raises(FfmemError, match="not one token of demo; give"):
            demo.token_id(text)


def test_contributions_are_those_of_one_place(relu: LanguageModel) -> None:
    for readings in (record(relu, TEXT, "hramyo"), record(relu, [TEXT, "a"], "hramyo", at=-1)):
        with pytest.raises(ModelError, match="at one place of one text"):
            contributions(relu, readings, 5)
    one = record(relu, TEXT, "hramyo", at=-1)
    whole = explain_prompt(relu, TEXT).records
    assert contributions(relu, one, 5).total == pytest.approx(contributions(relu, whole, 5).total)


@pytest.mark.parametrize("kind", ["doge", "falcon_h1", "bitnet"])
def test_parts_add_up_where_vectors_or_numbers_multiply_what_is_added(kind: str) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    view = explain_prompt(model, TEXT)
    found = contributions(model, view.records, 5)
    assert found.total == pytest.approx(float(own_logits(model)[5]), abs=1e-4)
    assert all(abs(part.rest) < 1e-4 for part in found.layers)


@torch.no_grad()
def test_a_memory_passes_the_vectors_of_later_blocks() -> None:
    """Doge multiplies the stream twice per block; without attention and memories that is all."""
    inner = tiny_model("doge")
    model = wrap(inner, tiny_tokenizer())  # seen while every layer still adds something
    for block in inner.model.layers[1:]:
        block.mlp.down_proj.weight.zero_()
        block.self_attn.o_proj.weight.zero_()
    view = explain_prompt(model, TEXT)
    found = contributions(model, view.records, 5)
    for part in found.layers[1:]:
        assert part.attention == pytest.approx(0.0, abs=1e-5)
        assert part.memories == pytest.approx(0.0, abs=1e-5)
    assert found.layers[0].memories + found.layers[0].attention + found.start == pytest.approx(
        found.logit - found.constant, abs=1e-4
    )


POST_NORM = {
    "openai-gpt": {},
    "opt": {"do_layer_norm_before": False},
    "bart": {},
}


@pytest.mark.parametrize("kind", POST_NORM)
def test_parts_add_up_through_norms_around_the_sum(kind: str) -> None:
    model = wrap(tiny_model(kind, **POST_NORM[kind]), tiny_tokenizer(), kind)
    assert {layer.form for layer in model.layers} == {"post-norm"}
    found = contributions(model, explain_prompt(model, TEXT).records, 5)
    assert found.total == pytest.approx(float(own_logits(model)[5]), abs=1e-4)
    assert all(abs(part.rest) < 1e-4 for part in found.layers)


def frozen(norm: torch.nn.Module, seen: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """A layer norm that divides by what it did divide by on `seen`."""
    centred = state - state.mean()
    size = (seen.var(correction=0) + norm.eps).sqrt()  # type: ignore[operator]
    return norm.weight * centred / size + norm.bias  # type: ignore[operator]


@torch.no_grad()
def test_terms_of_a_post_norm_model_are_what_is_lost_with_frozen_norms() -> None:
    """The slow way, block by block: a memory, or attention, is left out and later parts held."""
    model = ffmem.load("tiny:openai-gpt")
    view = explain_prompt(model, TEXT)
    seen = [
        {name: getattr(one, name)[0].double() for name in "hrymo"} for one in view.records.layers
    ]
    blocks = [layer.block for layer in model.layers]
    token, found = 5, contributions(model, view.records, 5, count=64)
    readings = list(zip(model.layers, view.records.layers, strict=True))
    sums = [one.raw["attention norm in"][0].double() for one in view.records.layers]
    towards = model.head.embedding[token].double()

    def logit(without: tuple[int, torch.Tensor], of_attention: bool) -> float:
        state = seen[0]["h"]
        for at, (block, one) in enumerate(zip(blocks, seen, strict=True)):
            less = without[1] if at == without[0] else torch.zeros_like(state)
            attention = sums[at] - one["h"] - (less if of_attention else 0)
            normed = frozen(block.ln_1.double(), sums[at], state + attention)
            y = one["y"] - (0 if of_attention else less)
            state = frozen(block.ln_2.double(), one["r"] + one["y"], normed + y)
        return float(towards @ state)

    nothing = torch.zeros_like(seen[0]["h"])
    whole = logit((0, nothing), False)
    assert whole == pytest.approx(found.logit, abs=1e-5)
    for at, (layer, reading) in enumerate(readings):
        lost = whole - logit((at, sums[at] - seen[at]["h"]), True)
        assert found.layers[at].attention == pytest.approx(lost, abs=1e-5)
        for memory in found.layers[at].strongest[::9]:
            value = memory.coefficient * layer.values[memory.address.index].double()
            assert float(reading.m[0, memory.address.index]) == memory.coefficient
            lost = whole - logit((at, value), False)
            assert memory.amount == pytest.approx(lost, abs=1e-5)


@torch.no_grad()
def test_the_terms_of_memories_are_coefficient_times_value_along_the_direction(
    relu: LanguageModel,
) -> None:
    """The slow way: each value by hand through a norm that divides by what it did divide by."""
    token, view = 7, explain_prompt(relu, TEXT)
    found = contributions(relu, view.records, token)
    reading, norm = view.records.layers[-1], relu.head.norm
    assert norm is not None
    normed = relu.head.chain[0](reading.o[0])
    size = norm.fold(reading.o[0]).norm() / (normed - norm.shift).norm()
    for memory in found.layers[-1].strongest[:3]:
        value = reading.layer.values[memory.address.index]
        expected = memory.coefficient * relu.head.embedding[token] @ (norm.fold(value) / size)
        assert memory.amount == pytest.approx(float(expected), rel=1e-4, abs=1e-5)


def test_the_strongest_come_first_and_follow_an_edit(toy: LanguageModel) -> None:
    plain = contributions(toy, explain_prompt(toy, TEXT).records, 7)
    first, *others = plain.strongest(5)
    assert all(abs(first.amount) >= abs(other.amount) for other in others)
    with edited(toy, [f"{str(first.address).rstrip('+-')}=0"]):
        without = contributions(toy, explain_prompt(toy, TEXT).records, 7, count=10_000)
    address = first.address
    silenced = [
        memory
        for memory in without.strongest(10_000)
        if (memory.address.layer, memory.address.index) == (address.layer, address.index)
    ]
    assert [memory.amount for memory in silenced] == [0.0]
    assert without.total == pytest.approx(without.logit, abs=1e-4)
