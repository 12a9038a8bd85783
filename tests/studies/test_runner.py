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

from ffmem.cli import main as cli
from ffmem.cli.main import main
from ffmem.corpus.sources import Source, digest
from ffmem.errors import StoreError
from ffmem.report.paper_claims import judge
from ffmem.store.result_files import to_plain
from ffmem.studies.registry import ANALYSES, applicable, parse_names
from ffmem.studies.study import charts_of, open_study
from tests.analyses.conftest import lines
from tests.waiting import wait_until


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

    def some_charts(name: str, result: object) -> dict[str, object]:
        found = charts_of(name, result)
        return {figure: found[figure] for figure in found.keys() & DRAWN}

    monkeypatch.setattr("ffmem.studies.inputs.digest", count)
    monkeypatch.setattr("ffmem.studies.study.charts_of", some_charts)
    words = ("--valid", valid, "--size", "small", "--sample", "12")
    out = " ".join(run(capsys, monkeypatch, "analyse", str(folder), *words).split())
    assert texts == [valid]  # read once for all analyses
    verdicts = judge(open_study(folder))
    assert len(verdicts) > 20
    assert [one.says in out for one in verdicts] == [one.finding is not None for one in verdicts]
    for name in applicable(ANALYSES, has_experts=False):
        found = json.loads((folder / "analyses" / f"{name}.json").read_text())
        assert found["name"] == name
        assert to_plain(open_study(folder).result(name)) == found["result"]
    for kind in ("html", "svg", "png", "csv", "json"):
        names = {path.stem for path in (folder / "figures").glob(f"*.{kind}")}
        assert names == DRAWN
    arrays = arrays_in(folder / "analyses" / "sample.npz")
    assert arrays["output"].shape == (12, 3)
    values = arrays_in(folder / "analyses" / "values.npz")
    assert values["ranks"].shape == (2 * 64 * 3, 4)
    assert {values[name].dtype.name for name in ("layer", "top", "ranks", "next")} == {"int32"}


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


@pytest.mark.usefixtures("few_figures")
def test_other_settings_never_take_the_place_of_a_result_unasked(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def files(root: Path) -> dict[str, bytes]:
        found = [path for path in root.rglob("*") if path.is_file()]
        return {str(path.relative_to(root)): path.read_bytes() for path in found}

    words = ("analyse", str(folder), "--only", "refinement,last-layer")
    run(capsys, monkeypatch, *words, "--sample", "9")
    first = files(folder)
    out = run(capsys, monkeypatch, *words, "--sample", "8")
    assert "kept" not in out
    (beside,) = (folder / "other-settings").iterdir()
    assert out.count(f"-> {beside}, because the study's own result has other settings") == 2
    assert files(folder).items() >= first.items()
    made = files(beside)
    assert json.loads(made["analyses/refinement.json"])["result"]["prefixes"] == 8
    assert arrays_in(beside / "analyses/sample.npz")["output"].shape[0] == 8
    assert "figures/refinement-winners.png" in made
    assert run(capsys, monkeypatch, *words, "--sample", "8").count("kept") == 2
    assert files(beside)["analyses/refinement.json"] == made["analyses/refinement.json"]
    out = run(capsys, monkeypatch, *words, "--sample", "7", "--again", "refinement,last-layer")
    assert open_study(folder).result("refinement").prefixes == 7
    assert arrays_in(folder / "analyses/sample.npz")["output"].shape[0] == 7
    (moved,) = (path for path in beside.parent.iterdir() if "sample-9" in path.name)
    assert f"(the earlier result, of other settings, is now in {moved})" in out
    for name in ("refinement.json", "last-layer.json", "sample.npz"):
        assert (moved / "analyses" / name).read_bytes() == first[f"analyses/{name}"]


def test_an_analysis_that_fails_leaves_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_subject: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setitem(ANALYSES, "values", replace(ANALYSES["values"], run=breaks))
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


def test_numbers_are_written_while_the_next_analysis_runs_and_stay_after_ctrl_c(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And trouble while they are written is the command's."""
    written = folder / "analyses" / "values.npz"

    def interrupt(_subject: object) -> None:
        wait_until(written.exists, "the numbers of the values")
        raise KeyboardInterrupt

    monkeypatch.setitem(ANALYSES, "refinement", replace(ANALYSES["refinement"], run=interrupt))
    words = ["analyse", str(folder), "--only", "values,refinement", "--sample", "9"]
    words.append("--no-figures")
    with pytest.raises(Abort):
        cli.run(words)
    assert open_study(folder).names == ("values",)
    assert arrays_in(written)["ranks"].shape == (2 * 64 * 3, 4)

    def full(path: Path, _arrays: object) -> None:
        raise StoreError(f"{path} cannot be written")

    monkeypatch.undo()
    monkeypatch.setattr("ffmem.studies.runner.write_npz", full)
    with pytest.raises(StoreError, match="sample.npz cannot be written"):
        cli.run(words)
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
