"""Controls for edits in one text, against the slow way: every memory of the layer looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ffmem.address import Address
from ffmem.memories.edit_controls import VALUE_TOKENS, EditControl, edit_controls
from ffmem.memories.edits import Edit, edited
from ffmem.memories.projection import logits
from ffmem.memories.prompt_answer import PromptQuestion, prompt_answer
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.recording import record
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

TEXT = "the river and"


def controls_of(model: LanguageModel, *texts: str) -> tuple[EditControl, ...]:
    lead = 0 if model.bos is None else 1
    return edit_controls(model, model.encode(TEXT), lead, [Edit.parse(text) for text in texts])


def slow_control(
    model: LanguageModel, address: Address, places: list[int] | None
) -> tuple[float, float]:
    """The memory's strength, and that of the nearest one that promotes other tokens."""
    layer = model.layer(address.layer)
    m = record(model, TEXT, "m").layer(layer.number).m[0]
    lead = 0 if model.bos is None else 1
    columns = range(len(m)) if places is None else [place - 1 + lead for place in places]
    own = model.index_of(address)

    def strength(index: int) -> float:
        length = float(value_vectors(layer, [index]).float().norm())
        return sum(abs(float(m[column, index])) for column in columns) * length

    def promoted(index: int) -> set[int]:
        signed = sum(float(m[column, index]) for column in columns)
        value = value_vectors(layer, [index]).float() * (-1 if signed < 0 else 1)
        return set(logits(model, value, "direction")[0].topk(VALUE_TOKENS).indices.tolist())

    others = [one for one in range(layer.memories) if one != own]
    fit = [one for one in others if not promoted(one) & promoted(own)]
    return strength(own), min(map(strength, fit), key=lambda one: abs(one - strength(own)))


@pytest.mark.parametrize("kind", ["opt", "llama", "gpt_neox", "qwen2_moe"])
def test_a_control_is_the_memory_nearest_in_strength_that_promotes_other_tokens(kind: str) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    strongest = explain_prompt(model, TEXT).steps[1].strongest[0].address.memory
    for places in (None, [2, 5]):
        at = "" if places is None else "@2,5"
        (found,) = controls_of(model, f"{strongest}=0{at}")
        own, nearest = slow_control(model, strongest, places)
        assert found.memory == strongest
        assert found.control.layer == strongest.layer
        assert found.control != strongest
        assert found.strength == pytest.approx(own, rel=1e-4)
        assert found.control_strength == pytest.approx(nearest, rel=1e-4)
        assert found.edit == f"{found.control}=0{at}"


def test_no_memory_is_a_control_twice_or_of_one_that_is_edited(gated: LanguageModel) -> None:
    edits = [f"L2.{index}=0" for index in range(12)]
    found = controls_of(gated, *edits)
    named = [one.control.index for one in found]
    assert len(set(named)) == len(edits)
    assert not set(named) & set(range(12))
    (scaled,) = controls_of(gated, "L2.3*2.5@4")
    assert scaled.edit == f"{scaled.control}*2.5@4"


def test_a_memory_that_is_held_has_a_control_that_adds_as_long_a_vector(
    relu: LanguageModel,
) -> None:
    (found,) = controls_of(relu, "L2.3=2")
    layer, amount = relu.layers[1], Edit.parse(found.edit).amount
    lengths = value_vectors(layer, [3, found.control.index]).norm(dim=1)
    assert amount * float(lengths[1]) == pytest.approx(2 * float(lengths[0]), rel=1e-4)


def test_edits_that_can_have_no_control_have_none(gated: LanguageModel) -> None:
    every = gated.layers[0].memories
    assert controls_of(gated, *(f"L1.{index}=0" for index in range(every))) == ()
    mixture = wrap(tiny_model("qwen2_moe"), tiny_tokenizer(), "mixture")
    assert controls_of(mixture, "L2.E1=0") == ()
    mean = replace(Edit.parse("L1.3=0.5"), is_mean=True)
    assert edit_controls(gated, gated.encode(TEXT), 0, [mean]) == ()


def test_a_prompt_is_answered_with_the_controls_edited_instead() -> None:
    model, text = load("demo"), "It was later discovered"
    found = prompt_answer(model, PromptQuestion(text), [Edit.parse("L12.691=0")])
    (control,) = found.controls
    with edited(model, control.edit):
        expected = explain_prompt(model, text)
    plain = explain_prompt(model, text)
    assert found.control_moved == pytest.approx(expected.divergence_from(plain))
    for one in found.chances:
        assert one.control == pytest.approx(float(expected.distribution[one.id]))
    assert found.moved is not None
    assert found.moved > 5 * found.control_moved
    assert 0 < control.share < 1
    assert prompt_answer(model, PromptQuestion(text)).control_moved is None
