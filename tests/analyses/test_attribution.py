"""The agreement of predicted with true effects, against what `ffmem why` says of one prompt."""

from __future__ import annotations

import pytest
import torch

from ffmem.analyses.attribution.measure import (
    DRAWN,
    LISTED,
    METHODS,
    PromptEffects,
    agreement,
    drawn_pairs,
    measure,
    pearson,
    read_prompts,
)
from ffmem.analyses.attribution.record import Attribution, MethodAgreement
from ffmem.memories.attribution import contributions
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.why.answer import why
from ffmem.memories.why.passes import LayerSlopes
from ffmem.memories.why.proposal import propose
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from tests.analyses.test_prefix_sample import sample_for

LAYERS = [1, 2, 3]


def method(found: Attribution, name: str) -> MethodAgreement:
    return next(one for one in found.methods if one.method == name)


@pytest.mark.parametrize("kind", ["opt", "llama", "qwen2_moe"])
def test_of_one_prompt_it_is_what_why_says_of_its_list(kind: str) -> None:
    model = wrap(tiny_model(kind), tiny_tokenizer(), kind)
    sample = sample_for(model, 8)
    row = int(sample.positions.argmax())
    effects, refusal = read_prompts(model, sample, [row], seed=0)
    assert not refusal
    text = sample.prefix(row)
    own = why(model, text, top=LISTED)
    found = agreement(effects, "gradient", LAYERS)
    assert found.listed.estimate == pytest.approx(own.agreement, abs=1e-4)
    linear = why(model, text, top=LISTED, method="linear")
    found = agreement(effects, "linear", LAYERS)
    assert found.listed.estimate == pytest.approx(linear.agreement, abs=1e-4)
    assert len({one.agreement for one in (own, linear)}) == 2
    (one,) = effects
    terms = contributions(model, explain_prompt(model, text), own.token_id)
    largest = sorted((t.abs() for part in terms.layers for t in part.terms), reverse=True)[0]
    direct, gradient = (
        one.predicted[name][one.is_listed[name]].abs().max() for name in ("direct", "gradient")
    )
    strongest = max(abs(effect.predicted) for effect in own.effects)
    assert float(direct / gradient) == pytest.approx(float(largest) / strongest, rel=1e-4)


def test_a_linear_model_agrees_with_the_gradient_and_not_with_random_signs() -> None:
    from tests.memories.test_why import linear_toy

    model = linear_toy()
    sample = sample_for(model, 12)
    effects, _ = read_prompts(model, sample, range(12), seed=0)
    for name in ("gradient", "linear"):
        found = agreement(effects, name, LAYERS)
        assert found.drawn.estimate == pytest.approx(1, abs=1e-6)
        assert found.listed.estimate == pytest.approx(1, abs=1e-6)
    for name in ("direct", "random"):
        assert agreement(effects, name, LAYERS).drawn.estimate < 0.8
    assert agreement(effects, "direct", LAYERS).by_layer[-1].estimate == pytest.approx(1, abs=1e-6)


def test_a_record_has_every_method_in_the_model_and_in_its_control(gated: LanguageModel) -> None:
    found = measure(gated, sample_for(gated, 24), prompts=14, seed=0)
    assert [one.method for one in found.methods] == list(METHODS)
    assert [one.method for one in found.permuted] == list(METHODS)
    assert found == measure(gated, sample_for(gated, 24), prompts=14, seed=0)
    assert found != measure(gated, sample_for(gated, 24), prompts=14, seed=1)
    assert found.prompts == 14
    assert {one.drawn.n for one in found.permuted} == {10}
    own, direct = (method(found, name).drawn for name in ("gradient", "direct"))
    assert found.gain.estimate == pytest.approx(own.estimate - direct.estimate)
    assert found.gain.low < found.gain.estimate < found.gain.high
    assert own.low <= own.estimate <= own.high <= 1
    assert found.layers == tuple(one.number for one in gated.layers)
    assert not found.refusal


def test_a_model_without_a_linear_reading_says_why_and_has_the_other_methods() -> None:
    model = wrap(tiny_model("bloom"), tiny_tokenizer(), "bloom")
    found = measure(model, sample_for(model, 12), prompts=10, seed=0)
    assert "bloom has no linear reading" in found.refusal
    assert method(found, "linear").drawn.n == 0
    assert method(found, "gradient").drawn.n == 10


def prompt_of(true: torch.Tensor, predicted: torch.Tensor) -> PromptEffects:
    drawn = torch.arange(len(true)) % 3 > 0
    methods = {"gradient": predicted, "direct": true * (torch.arange(len(true)) % 2)}
    listed = dict.fromkeys(methods, ~drawn)
    return PromptEffects(true, 1 + torch.arange(len(true)) % 2, methods, drawn, listed)


def scaled(prompts: list[PromptEffects], method: str, layers: list[int]) -> torch.Tensor:
    """[side, pair]: drawn pairs, each layer of each prompt to the same size."""
    found = []
    for one in prompts:
        for layer in layers:
            chosen = one.is_drawn & (one.layers == layer)
            both = torch.stack([one.true[chosen], one.predicted[method][chosen]])
            found.append(both / both.square().mean(dim=1, keepdim=True).sqrt())
    return torch.cat(found, dim=1)


def test_a_correlation_is_over_the_pairs_of_all_prompts() -> None:
    draw = torch.Generator().manual_seed(0)
    both = [10**at * torch.randn(2, 30, generator=draw).double() for at in range(20)]
    prompts = [prompt_of(t, p + 0.5 * t) for t, p in both]
    found = agreement(prompts, "gradient", [1, 2, 3])
    expected = float(torch.corrcoef(scaled(prompts, "gradient", [1, 2]))[0, 1])
    assert found.drawn.estimate == pytest.approx(expected)
    assert found.drawn.low < expected < found.drawn.high
    one = float(torch.corrcoef(scaled(prompts, "gradient", [2]))[0, 1])
    assert found.by_layer[1].estimate == pytest.approx(one)
    assert found.by_layer[1].n == 20
    assert found.by_layer[2].n == 0
    assert pearson(torch.tensor([3.0, 6.0, 6.0, 12.0, 14.0, 12.0])).isnan()


def test_effects_that_are_rounding_count_for_nothing() -> None:
    draw = torch.Generator().manual_seed(0)
    true, predicted = torch.randn(2, 30, generator=draw).double()
    true[1::2] *= 1e-9  # of the second layer
    found = agreement([prompt_of(true, predicted)], "gradient", [1, 2])
    assert [one.n for one in found.by_layer] == [1, 0]
    assert found.drawn.estimate == found.by_layer[0].estimate


def test_pairs_are_drawn_by_what_they_add_and_never_twice(relu: LanguageModel) -> None:
    layer = relu.layers[0]
    m = torch.zeros(4, layer.memories)
    m[0] = 5  # a leading column
    m[2, :8], m[3, :8] = 1, 20
    slopes = LayerSlopes(layer, m, torch.ones(4, layer.width))
    proposal = propose([slopes], lead=1)
    counts = {2: 0, 3: 0}
    for seed in range(100):
        found = drawn_pairs(slopes, proposal, torch.Generator().manual_seed(seed))
        assert len({(one.column, one.memory) for one in found}) == DRAWN
        for one in found:
            counts[one.column] += 1
    assert counts[3] > 8 * counts[2] > 0
    m[3], m[2, 1:] = 0, 0
    (only,) = drawn_pairs(slopes, propose([slopes], 1), torch.Generator())
    assert (only.column, only.memory) == (2, 0)
