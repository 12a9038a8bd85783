"""Edges and facts of several prompts, against slow loops over edited models."""

from __future__ import annotations

import pytest
import torch

from ffmem.address import Address
from ffmem.errors import FfmemError
from ffmem.memories.edits import Edit, edited
from ffmem.memories.recording import record
from ffmem.memories.why.answer import why
from ffmem.memories.why.several import facts
from ffmem.memories.why.silencing import Plan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap

TEXT = "the river and"
PROMPTS = ["the river", "a river", "the rivers"]


def score(model: LanguageModel, address: Address, place: int) -> float:
    """The score of a memory's key after some tokens, in a mixture 0 where it is not chosen."""
    reading = record(model, TEXT, "a").layer(address.layer)
    return float(reading.a[0, place, model.index_of(address)])


@pytest.mark.parametrize("kind", ["opt", "llama", "gpt_neox", "phi3", "qwen2_moe"])
def test_edges_are_what_silencing_does_to_a_score(kind: str) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    found = why(model, TEXT, token=77, top=12, edges=True)
    assert found.edges
    for edge in found.edges:
        assert edge.source.layer < edge.target.layer
        assert edge.source_place <= edge.target_place
        assert edge.target in {one.address for one in found.effects}
        plain = score(model, edge.target, edge.target_place)
        with edited(model, Edit(edge.source.memory, "set", 0.0, (edge.source_place,))):
            without = score(model, edge.target, edge.target_place)
        assert edge.true == pytest.approx(plain - without, abs=1e-5)
    assert why(model, TEXT, token=77, top=12).edges == ()


def test_edges_from_the_layer_below_are_predicted_by_its_values() -> None:
    """With frozen positions nothing lies between a value and the next key but attention and norm.

    A hundredth of the coefficient is taken away, and the score moves as predicted.
    """
    model = wrap(tiny_model("opt").double(), tiny_tokenizer(), "opt")
    share = 1e-4
    for edge in why(model, TEXT, token=77, top=12, edges=True).edges:
        plain = score(model, edge.target, edge.target_place)
        scale = Edit(edge.source.memory, "scale", 1 - share, (edge.source_place,))
        with edited(model, scale):
            slope = (plain - score(model, edge.target, edge.target_place)) / share
        assert edge.predicted == pytest.approx(slope, rel=1e-2, abs=1e-4)


def test_facts_are_the_memories_of_most_prompts_with_their_mean_effects(
    gated: LanguageModel,
) -> None:
    found = facts(gated, PROMPTS, token=77, top=10)
    assert found.needed == 2
    assert found.memories
    assert found == facts(gated, PROMPTS, token=77, top=10)

    def mean(addresses: list[Address]) -> float:
        effects = []
        for text in PROMPTS:
            with torch.no_grad():
                tokens = gated.encode(text)
                places = tuple(range(1, tokens.shape[1]))
                plain = gated.model(input_ids=tokens).logits[0, -1, 77]
                with edited(gated, [Edit(one, "set", 0.0, places) for one in addresses]):
                    effects.append(float(plain - gated.model(input_ids=tokens).logits[0, -1, 77]))
        return sum(effects) / len(effects)

    plans: list[Plan] = []
    facts(gated, PROMPTS, token=77, top=10, on_plan=plans.append)
    assert [one.copies for one in plans] == [3 * (2 * len(found.memories) + 2)]
    for one in found.memories:
        assert one.prompts >= 2
        assert one.effect == pytest.approx(mean([one.address]), abs=1e-5)
        assert one.control_effect == pytest.approx(mean([one.control]), abs=1e-5)
        assert one.control.layer == one.address.layer
    memories, controls = ({getattr(m, n) for m in found.memories} for n in ("address", "control"))
    assert len(memories) == len(controls) == len(found.memories)
    assert not memories & controls
    assert found.joint == pytest.approx(mean(sorted(memories, key=str)), abs=1e-5)
    assert found.control_joint == pytest.approx(mean(sorted(controls, key=str)), abs=1e-5)


def test_controls_are_as_strong_as_what_they_stand_beside() -> None:
    model = load("demo")
    texts = ["The king was", "The queen was", "The church was"]
    found = facts(model, texts, top=10)

    assert len(found.memories) >= 3
    for one in found.memories:
        layer = model.layer(one.address.layer)
        with torch.no_grad():
            m = [record(model, text, "m").layer(layer.number).m[0, 1:] for text in texts]
            strengths = torch.cat(m).abs().sum(dim=0) * layer.values.norm(dim=1)
        ranks = strengths.argsort().argsort()
        distance = int((ranks[one.address.index] - ranks[one.control.index]).abs())
        assert distance <= 20 + 2 * len(found.memories)
    assert abs(found.joint) > 3 * abs(found.control_joint)


def test_facts_need_several_prompts(gated: LanguageModel) -> None:
    for prompts, top in ((PROMPTS[:1], 5), (PROMPTS, 0)):
        with pytest.raises(FfmemError, match="two prompts or more"):
            facts(gated, prompts, top=top)
    with pytest.raises(FfmemError, match="choose a smaller top"):
        facts(gated, PROMPTS, top=1000)
