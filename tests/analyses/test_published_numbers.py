"""Published numbers: complete, found by shape, equal where they should be and not where not."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ffmem.analyses.published_numbers import PublishedModel, compare_numbers, published_models
from ffmem.errors import ModelError
from ffmem.memories.folded_weights import folded_weights
from ffmem.models.language_model import LanguageModel
from tests.analyses.test_weights import planted as planted  # noqa: PLC0414 - a fixture
from tests.cli.test_commands import run


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


def test_a_model_matches_its_own_numbers_and_no_others(planted: LanguageModel) -> None:
    toy = of_toy(planted)
    found = compare_numbers(planted, [toy])
    assert [one.what.split()[0] for one in found] == ["class"] * 3 + ["L3.2"] + ["L2.4"] * 3
    assert all(one.matches for one in found), found
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


def test_the_command_prints_what_matches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import ffmem

    path = tmp_path / "published.json"
    model = ffmem.load("tiny:gpt2")
    path.write_text(json.dumps([asdict(replace(of_toy(model), entropy=()))]))
    code, out, _ = run(capsys, "check", "tiny:gpt2", "--published", str(path))
    assert code == 0
    assert "toy: 6 of 6 match (a test)" in out
    code, _, err = run(capsys, "check", "tiny:gpt2")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    path.write_text("{")
    code, _, err = run(capsys, "check", "tiny:gpt2", "--published", str(path))
    assert (code, len(err.strip().splitlines())) == (2, 1)
