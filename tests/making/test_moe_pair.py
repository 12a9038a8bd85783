"""A mixture and a dense model of the same active size, trained tiny: resumed, saved, studied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import ffmem
from ffmem.address import Parts
from making.study_moe_pair import main as study_pair
from making.study_moe_pair import numbers_of
from making.train_moe_pair import active_parameters, main, new_model, parse

WORDS = (
    "--layers 2 --width 16 --heads 2 --experts 4 --chosen 2 --size 8 --vocabulary 300 --block 16 "
    "--positions 64 --batch-tokens 64 --held-out 4 --processes 1 --device cpu --look 4 --rate 0.01 "
    "--reserve 0"
)
SIZE = WORDS.split()
LINES = [
    f"The {colour} {animal} of the north runs {number} miles and sleeps in its {colour} den."
    for number in range(1, 4)
    for colour in ("red", "grey", "white", "brown")
    for animal in ("fox", "bear", "hare", "wolf", "owl")
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def test_both_have_the_same_active_size() -> None:
    given = parse(["text", "--into", "folder", *SIZE])
    mixture, dense = (new_model(name, given) for name in ("moe", "dense"))
    router = 2 * 4 * 16  # layers x experts x width
    assert active_parameters(mixture) - router == active_parameters(dense)
    assert sum(p.numel() for p in mixture.parameters()) > active_parameters(mixture)


def test_training_in_two_runs_is_training_in_one(text: Path, tmp_path: Path) -> None:
    for folder, runs in (("one", [640]), ("two", [256, 640])):
        for tokens in runs:
            main([str(text), "--into", str(tmp_path / folder), "--tokens", str(tokens), *SIZE])
    for name in ("moe", "dense"):
        one, two = (tmp_path / folder / name / "curve.json" for folder in ("one", "two"))
        first, last = (json.loads(path.read_text())["curve"] for path in (one, two))
        assert [point["step"] for point in last] == [4, 8, 10]
        assert first[-1]["step"] == 10
        assert first[-1]["validation perplexity"] < first[0]["validation perplexity"]


def test_what_is_saved_is_read_as_memories(text: Path, tmp_path: Path) -> None:
    main([str(text), "--into", str(tmp_path / "pair"), "--tokens", "256", *SIZE])
    mixture, dense = (
        ffmem.load(str(tmp_path / "pair" / name), device="cpu") for name in ("moe", "dense")
    )
    assert [layer.parts for layer in mixture.layers] == [Parts(4, 8, ())] * 2
    assert [layer.memories for layer in dense.layers] == [16, 16]
    assert mixture.bos == dense.bos == 2
    kept = torch.load(tmp_path / "pair" / "moe.pt", weights_only=True)["model"]
    for name, tensor in mixture.model.state_dict().items():
        torch.testing.assert_close(tensor, kept[name].bfloat16().to(tensor.dtype))
    study = ffmem.run_scan(mixture, [*LINES], tmp_path / "scan", top=3, sample=2)
    assert study.store.manifest.counts["sentences"] == len(LINES)


def test_numbers_of_a_study_have_every_key_and_no_text(text: Path, tmp_path: Path) -> None:
    main([str(text), "--into", str(tmp_path / "pair"), "--tokens", "64", *SIZE])
    more = tmp_path / "more.txt"
    more.write_text(text.read_text() * 8)
    how = f"--sentences {8 * len(LINES)} --keys 2 --size small --only dense-eighth --device cpu"
    folder = tmp_path / "studies"
    study_pair([str(tmp_path / "pair"), str(more), "--into", str(folder), *how.split()])
    found = numbers_of(folder / "dense-eighth")
    assert found["scan"]["sentences"] == len(LINES)  # an eighth of them
    patterns = found["results"]["patterns"]
    assert len(patterns["keys"]) + patterns["dead"] == 2 * 2
    assert patterns["records"] == []
    assert "fox" not in json.dumps(found)
    assert not (folder / "numbers.json.xz").exists()  # two studies are not there yet
