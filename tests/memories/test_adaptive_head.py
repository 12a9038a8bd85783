"""A head that is a function: log-probabilities by band, and everything that is read through it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import ffmem
from ffmem.analyses.inputs.layer_readings import DEFAULT_CONVENTION, predictions_of
from ffmem.analyses.last_layer.measure import nearness
from ffmem.analyses.lenses.measure import lenses_of
from ffmem.memories.attribution import contributions
from ffmem.memories.projection import Lens
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.value_vectors import rank_in_parts
from tests.small_study import small_results

LINEAR = Lens(bands="linear")


@pytest.fixture(scope="module")
def model() -> ffmem.LanguageModel:
    return ffmem.load("tiny:fairseq_lm", device="cpu")


def vectors_of(model: ffmem.LanguageModel, embed: str = "output") -> Tensor:
    """[token, width]: every token's own vector, built whole."""
    module = model.head.output if embed == "output" else model.head.input
    parts = []
    for number in range(3):
        rows = getattr(module, f"rows_{number}")
        projection = getattr(module, f"projection_{number}", None)
        parts.append(rows if projection is None else rows @ projection.T)
    return torch.cat(parts).detach()


def states(model: ffmem.LanguageModel, count: int = 5) -> Tensor:
    return torch.randn(count, model.hidden_size, generator=torch.Generator().manual_seed(3))


def test_states_and_pieces_are_read_as_log_probabilities(model: ffmem.LanguageModel) -> None:
    h = states(model)
    with torch.no_grad():
        whole = model.model.lm_head(h)
    assert model.vocab_size < model.head.vocabulary  # the sums are over rows that no token uses too
    for kind in ("residual", "direction"):
        found = ffmem.logits(model, h, kind)  # type: ignore[arg-type]
        torch.testing.assert_close(found, whole[:, : model.vocab_size], atol=1e-5, rtol=1e-5)
    assert (whole.exp().sum(dim=1) - 1).abs().max() < 1e-5


def test_linear_scores_are_inner_products(model: ffmem.LanguageModel) -> None:
    h = states(model)
    for lens, embed in ((LINEAR, "output"), (Lens(embed="input"), "input")):
        expected = h @ vectors_of(model, embed)[: model.vocab_size].T
        found = ffmem.logits(model, h, "direction", lens)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    both = ffmem.logits(model, h[0] + h[1], "direction", LINEAR)
    apart = ffmem.logits(model, h[:2], "direction", LINEAR).sum(dim=0)
    torch.testing.assert_close(both, apart, atol=1e-5, rtol=1e-5)


def test_vectors_of_some_tokens_and_in_chunks(model: ffmem.LanguageModel) -> None:
    expected, vectors = vectors_of(model), model.head.vectors()
    tokens = torch.tensor([263, 0, 64, 63, 164, 163])
    torch.testing.assert_close(vectors.of(tokens), expected[tokens])
    chunks = list(vectors.chunks(30))
    assert max(len(part) for _, part in chunks) == 30
    torch.testing.assert_close(torch.cat([part for _, part in chunks]), expected)
    assert [ids.start for ids, _ in chunks][:4] == [0, 30, 60, 64]
    assert len(vectors.first(100)) == 100
    assert vectors.width == model.hidden_size


def test_every_lens_that_differs_is_offered(model: ffmem.LanguageModel) -> None:
    assert set(lenses_of(model)) == {"raw", "linear", "input embedding"}
    assert set(lenses_of(ffmem.load("tiny:opt", device="cpu"))) == {"raw", "norm-folded"}


@pytest.mark.parametrize("token", [10, 100, 200])  # one of each band
def test_terms_add_up_to_the_log_probability(model: ffmem.LanguageModel, token: int) -> None:
    readings = explain_prompt(model, "a river and a stone").records
    found = contributions(model, readings, token)
    with torch.no_grad():
        own = model.model(model.encode("a river and a stone")).logits[0, -1, token]
    assert found.logit == pytest.approx(float(own), abs=1e-4)
    assert found.total == pytest.approx(found.logit, abs=1e-4)
    layer, memory = found.layers[1], found.layers[1].strongest[0].address.index
    value, m = model.layers[1].values[memory], readings.layer(2).m[0, memory]
    direction = vectors_of(model)[token]
    if token >= 64:
        direction = direction + model.head.classes[0 if token < 164 else 1]  # type: ignore[index]
    expected = float((m * value @ direction).detach())
    assert float(layer.terms[memory]) == pytest.approx(expected, abs=1e-5)


def test_what_a_value_suppresses_is_what_its_opposite_promotes(model: ffmem.LanguageModel) -> None:
    layer = model.layers[0]
    ends = next(rank_in_parts(model, layer, 3))
    for sign, tokens, sure in (
        (1, ends.promoted, ends.probability),
        (-1, ends.suppressed, ends.suppressed_probability),
    ):
        top = ffmem.top_tokens(model, sign * layer.values, "direction", 3)
        torch.testing.assert_close(tokens, top.tokens)
        torch.testing.assert_close(sure, top.probabilities[:, 0])


def test_nearness_is_by_the_whole_vectors(model: ffmem.LanguageModel) -> None:
    unit = torch.nn.functional.normalize(vectors_of(model)[: model.vocab_size], dim=1)
    one, other = torch.tensor([3, 70, 200]), torch.tensor([90, 250, 7])
    found = nearness(model, one, other)
    for a, b, share in zip(one.tolist(), other.tolist(), found.tolist(), strict=True):
        near = unit @ unit[a] > unit[a] @ unit[b]
        near[[a, b]] = False
        assert share == pytest.approx(float(near.sum()) / model.vocab_size)


def test_pushes_are_scores_that_add_up(model: ffmem.LanguageModel) -> None:
    readings = ffmem.record(model, "the stone lay in the river for years", "hramyo", at=-1).layers
    found = predictions_of(model, readings, DEFAULT_CONVENTION, torch.zeros(1).long())
    vectors = vectors_of(model)
    for place, reading in enumerate(readings):
        old, new = int(found["residual"][0, place]), int(found["output"][0, place])
        pushes = {
            name: float(vectors[one] @ reading.y[0]) for name, one in (("old", old), ("new", new))
        }
        assert float(found["push_on_old"][0, place]) == pytest.approx(pushes["old"], abs=1e-4)
        for name, push in pushes.items():
            assert float(found[f"{name}_change"][0, place]) == pytest.approx(push, abs=1e-4)


def test_edits_and_generation_go_through_it(model: ffmem.LanguageModel) -> None:
    before = explain_prompt(model, "a river")
    strong = before.steps[-1].strongest[0].address
    with ffmem.edited(model, [f"{strong}=50"]):
        after = explain_prompt(model, "a river")
    assert after.divergence_from(before) > 0
    assert float(after.distribution.sum()) <= 1 + 1e-5
    assert len(model.generate("a river", 4, 7)) > 0


def test_every_analysis_runs_on_it(model: ffmem.LanguageModel, tmp_path: Path) -> None:
    study = small_results(model, tmp_path / "study")
    assert not study.failures
