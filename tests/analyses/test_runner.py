"""`ffmem analyse` from a store to files, on a toy."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Abort

from ffmem.analyses.catalogue import ANALYSES, STANDARD, applicable, judge, parse_names
from ffmem.analyses.study import charts_of, open_study
from ffmem.cli import main as cli
from ffmem.cli.main import main
from ffmem.corpus.sources import Source, digest
from ffmem.errors import StoreError
from ffmem.records import to_plain
from tests.analyses.conftest import lines


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["ffmem", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert stop.value.code == 0, err
    return out


def arrays_in(path: Path) -> dict[str, Any]:
    """All arrays of an .npz file, which is closed again."""
    with np.load(path) as file:
        return dict(file)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text of a scan, and the scan."""
    root = tmp_path_factory.mktemp("scan")
    (root / "train.txt").write_text("\n".join(lines(160, 1)) + "\n")
    words = ["scan", "tiny:llama", str(root / "train.txt"), "-o", str(root / "scan"), "-k", "4"]
    assert cli.run(words) == 0
    return root / "scan"


@pytest.fixture
def folder(scan: Path, tmp_path: Path) -> Path:
    """The scan, for one test alone."""
    (tmp_path / "valid.txt").write_text("\n".join(lines(20, 2)) + "\n")
    return Path(shutil.copytree(scan, tmp_path / "scan"))


DRAWN = {"values-agreement", "refinement-winners", "causal-divergence"}


@pytest.mark.usefixtures("few_calibration_keys")
def test_every_analysis_leaves_numbers_and_figures(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the figures some, as files; tests of the report draw all of them."""
    valid, texts = str(folder.parent / "valid.txt"), []

    def count(source: Source) -> str:
        texts.append(source.path)
        return digest(source)

    def some_charts(name: str, *results: Any) -> dict[str, object]:
        found = charts_of(name, *results)
        return {figure: found[figure] for figure in found.keys() & DRAWN}

    monkeypatch.setattr("ffmem.analyses.inputs.study_inputs.digest", count)
    monkeypatch.setattr("ffmem.analyses.study.charts_of", some_charts)
    names = applicable((*STANDARD, "coefficients"), has_experts=False)
    words = ("--valid", valid, "--size", "small", "--sample", "12", "--claims")
    words = (*words, "--only", ",".join(names))
    out = " ".join(run(capsys, monkeypatch, "analyse", str(folder), *words).split())
    assert texts == [valid]  # read once for all analyses
    verdicts = judge(open_study(folder))
    assert len(verdicts) > 20
    assert [one.says in out for one in verdicts] == [one.finding is not None for one in verdicts]
    for name in names:
        found = json.loads((folder / "analyses" / f"{name}.json").read_text())
        assert found["name"] == name
        assert to_plain(open_study(folder).result(name)) == found["result"]
    for kind in ("html", "svg", "png", "csv", "json"):
        assert {path.stem for path in (folder / "figures").glob(f"*.{kind}")} == DRAWN
    refinement = open_study(folder).result("refinement")
    assert (refinement.prefixes, refinement.sentences) == (4 * 12, 12)
    values = arrays_in(folder / "analyses" / "values.npz")
    assert values["ranks"].shape == (2 * 64 * 3, 4)
    assert values["ranks"].dtype.name == "int32"


@pytest.mark.usefixtures("few_figures")
def test_an_untrained_model_is_a_word_away(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--only", "values", "--control", "random-weights")
    out = run(capsys, monkeypatch, "analyse", str(folder), *words)
    assert "control-random-weights" in out
    control = open_study(folder / "control-random-weights")
    assert control.model_name == "tiny:llama with random weights"
    assert control.names == ("values",)
    assert not (folder / "analyses").exists()


def test_what_is_there_is_kept_and_made_again_on_demand(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("analyse", str(folder), "--only", "refinement,last-layer", "--no-figures")
    run(capsys, monkeypatch, *words, "--sample", "9")
    first = (folder / "analyses/refinement.json").read_bytes()
    out = run(capsys, monkeypatch, *words, "--sample", "9", "--again", "last-layer")
    assert [line.split()[1] == "kept" for line in out.splitlines()[:2]] == [True, False]
    assert (folder / "analyses/refinement.json").read_bytes() == first
    (folder / "analyses/refinement.json").write_text("{")
    assert run(capsys, monkeypatch, *words, "--sample", "9").count("kept") == 1
    assert open_study(folder).result("refinement").prefixes == 9


def test_a_result_of_other_settings_is_replaced_only_when_it_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["analyse", str(folder), "--no-figures", "--only"]
    run(capsys, monkeypatch, *words, "refinement,last-layer", "--sample", "9")
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    refused = "results of other settings: {}; give these settings"
    for only, again, named in (
        ("refinement,last-layer", [], "refinement (sample 9), last-layer (sample 9)"),
        ("values,last-layer", ["--again", "refinement"], "last-layer (sample 9)"),
    ):
        monkeypatch.setattr(sys, "argv", ["ffmem", *words, only, *again, "--sample", "8"])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr().err
        assert stop.value.code == 2
        assert refused.format(named) in said
        assert len(said.splitlines()) == 1
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == first
    both = ("refinement", "--sample", "7", "--again", "last-layer,refinement")
    run(capsys, monkeypatch, *words, *both)
    for name in ("refinement", "last-layer"):
        made = json.loads((folder / f"analyses/{name}.json").read_text())
        assert made["made_from"]["sample"] == 7


def test_an_analysis_that_fails_leaves_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_subject: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setitem(ANALYSES, "values", replace(ANALYSES["values"], measure=breaks))
    words = ["analyse", str(folder), "--only", "values,refinement", "--sample", "9"]
    words.append("--no-figures")
    monkeypatch.setattr(sys, "argv", ["ffmem", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "values failed: MemoryError" in capsys.readouterr().err
    study = open_study(folder)
    assert (study.names, study.failures) == (("refinement",), ("values",))
    assert "no room" in (folder / "failures/values.txt").read_text()
    monkeypatch.undo()
    run(capsys, monkeypatch, *words)
    assert not open_study(folder).failures


def test_a_result_is_written_after_its_numbers_and_a_full_disk_is_said_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = folder / "analyses" / "values.npz"
    words = ["analyse", str(folder), "--only", "values,refinement", "--sample", "9"]
    words.append("--no-figures")

    def full(path: Path, _arrays: object) -> None:
        raise StoreError(f"{path} cannot be written")

    monkeypatch.setattr("ffmem.analyses.runner.write_npz", full)
    assert cli.run(words) != 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "values failed" in said
    assert "values.npz cannot be written" in said
    assert open_study(folder).names == ("refinement",)
    monkeypatch.undo()

    def interrupt(_subject: object) -> None:
        assert arrays_in(written)["ranks"].shape == (2 * 64 * 3, 4)
        raise KeyboardInterrupt

    monkeypatch.setitem(ANALYSES, "refinement", replace(ANALYSES["refinement"], measure=interrupt))
    with pytest.raises(Abort):
        cli.run([*words, "--again", "refinement"])
    assert open_study(folder).names == ("values", "refinement")


def test_a_validation_text_that_is_gone_is_refused_before_the_work(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["analyse", str(folder), "--only", "refinement,values", "--no-figures"]
    run(capsys, monkeypatch, *words, "--sample", "9")
    first = (folder / "analyses/refinement.json").read_bytes()
    monkeypatch.setattr(sys, "argv", ["ffmem", *words, "--valid", str(folder / "gone.txt")])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert "gone.txt" in err
    assert "values" not in out
    assert (folder / "analyses/refinement.json").read_bytes() == first


def test_a_wrong_name_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ffmem", "analyse", str(folder), "--only", "vales"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "vales" in capsys.readouterr().err


def test_names_are_read_with_spaces() -> None:
    assert parse_names(" values, causal") == ("values", "causal")
