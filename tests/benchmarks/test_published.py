"""Published numbers: complete, found by shape, equal where they should be and not where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.published import PublishedModel, compare_numbers, print_table, published_models
from ffmem.errors import ModelError
from ffmem.memories.folded_weights import folded_weights
from ffmem.models.language_model import LanguageModel
from tests.analyses.test_weights import planted as planted  # noqa: PLC0414 - a fixture


def test_every_memory_of_a_published_model_has_a_class() -> None:
    models = published_models()
    assert len(models) >= 30
    for one in models:
        if one.classes:
            assert sum(one.classes) == one.layers * one.memories, one.name
            assert len(one.classes) in (3, 11)
        assert one.source


def of_toy(model: LanguageModel) -> PublishedModel:
    """Numbers of the toy, counted one memory at a time."""
    counts = [0, 0, 0]
    for layer in model.layers:
        weights = folded_weights(model, layer)
        for key, value in zip(weights.keys, weights.values, strict=True):
            cosine = float(key @ value / (key.norm() * value.norm()))
            counts[0 if cosine > 0.5 else 2 if cosine < -0.5 else 1] += 1
    weights = folded_weights(model, model.layers[1])
    return PublishedModel(
        name="toy",
        type="gpt2",
        layers=3,
        memories=model.layers[0].memories,
        width=model.hidden_size,
        source="a test",
        classes=tuple(counts),
        entropy=("L3.2",),
        entropy_source="a test",
        memories_by_address={
            "L2.4": {
                "key_norm": float(weights.keys[4].norm()),
                "key_bias": float(weights.key_bias[4]),
                "value_norm": float(weights.values[4].norm()),
            }
        },
    )


def test_a_model_matches_its_own_numbers_and_no_others(
    planted: LanguageModel, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = of_toy(planted)
    found = compare_numbers(planted, [toy])
    assert [one.what.split()[0] for one in found] == ["class"] * 3 + ["L3.2"] + ["L2.4"] * 3
    assert all(one.matches for one in found), found
    print_table(found)
    assert capsys.readouterr().out.splitlines()[-1] == "toy: 7 of 7 match (a test)"
    wrong = replace(
        toy,
        classes=(toy.classes[0] + 1, toy.classes[1] - 1, toy.classes[2]),
        entropy=("L3.9",),
        memories_by_address={"L2.4": {"key_norm": 99.0}},
    )
    assert [one.matches for one in compare_numbers(planted, [wrong])] == [
        False, False, True, False, False,
    ]  # fmt: skip


def test_a_model_of_another_shape_is_refused(planted: LanguageModel) -> None:
    with pytest.raises(ModelError, match="nothing is published"):
        compare_numbers(planted, published_models())
