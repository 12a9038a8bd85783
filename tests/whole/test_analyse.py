"""`ffmem analyse` from a store to files, on a toy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ffmem.cli.main import main
from ffmem.stages import RUNS, chosen, plain
from tests.analyses.conftest import lines


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["ffmem", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert stop.value.code == 0, err
    return out


@pytest.fixture
def folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Path:
    (tmp_path / "train.txt").write_text("\n".join(lines(40, 1)) + "\n")
    (tmp_path / "valid.txt").write_text("\n".join(lines(20, 2)) + "\n")
    out = tmp_path / "scan"
    words = ("tiny:llama", str(tmp_path / "train.txt"), "-o", str(out), "-k", "4")
    run(capsys, monkeypatch, "scan", *words)
    return out


def test_every_analysis_leaves_numbers_and_figures(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    valid = str(folder.parent / "valid.txt")
    run(capsys, monkeypatch, "analyse", str(folder), "--valid", valid, "--sample", "12")
    for name in RUNS:
        found = json.loads((folder / "analyses" / f"{name}.json").read_text())
        assert found["analysis"] == name
        assert found["result"]
    for kind in ("html", "svg", "png", "csv", "json"):
        names = {path.stem for path in (folder / "figures").glob(f"*.{kind}")}
        assert {"values-agreement", "refinement-winners", "causal-divergence"} <= names
    arrays = np.load(folder / "analyses" / "sample.npz")
    assert arrays["output"].shape == (12, 3)
    assert np.load(folder / "analyses" / "values.npz")["ranks"].shape == (2 * 64 * 3, 4)


def test_an_untrained_model_is_a_word_away(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--only", "values", "--control", "random-weights")
    out = run(capsys, monkeypatch, "analyse", str(folder), *words)
    assert "control-random-weights" in out
    found = json.loads((folder / "control-random-weights/analyses/values.json").read_text())
    assert found["model"] == "tiny:llama with random weights"
    assert not (folder / "analyses").exists()


def test_a_wrong_name_and_a_missing_text_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, says in ((["--only", "vales"], "vales"), (["--only", "refinement"], "--valid")):
        monkeypatch.setattr(sys, "argv", ["ffmem", "analyse", str(folder), *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        assert says in capsys.readouterr().err


def test_results_become_plain_numbers() -> None:
    assert plain({"a": (1.0, float("nan"))}) == {"a": [1.0, None]}
    assert chosen(" values, causal") == ("values", "causal")
