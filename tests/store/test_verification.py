"""A damaged file of a scan is always noticed by `ffmem verify`, and never a traceback elsewhere."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest

from ffmem.analyses.analysis import SMALL_SIZES
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import open_study
from ffmem.errors import StoreError
from ffmem.execution.run import run_scan
from ffmem.locations import location
from ffmem.models.language_model import LanguageModel
from ffmem.report.build import write_report
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import FORMAT, read_manifest
from ffmem.store.memory_page import stored_coefficients
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import agreement_column, cell_column, next_token_ranks
from ffmem.store.search.index import is_current_index
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.verification import inventory, lasting_damage
from tests.analyses.conftest import FEW_LINES, scanned_lines
from tests.cli.test_commands import run
from tests.execution.small_scans import plan_for, sentences

SELF_CHECKING = {"manifest.json", "prepared/made.json"}
Harm = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan with its search index, some analyses and a report."""
    out = tmp_path_factory.mktemp("damage") / "study"
    store = scanned_lines(relu, out, [*FEW_LINES, "café 東京"])
    MemoryIndex.open(store)
    run_analyses(StudyInputs(relu, store, SMALL_SIZES), ("values", "weights", "coefficients"), out)
    write_report(open_study(out))
    return out


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "study"))


def scan_files(root: Path) -> set[str]:
    """The files of the scan and its index: all but results and reports."""
    paths = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "analyses"]
    files = {path.relative_to(root).as_posix() for path in paths}
    files = {file for file in files if not file.startswith("report/")}
    return files - {"report.html", "report.md", "numbers.json"}


def known(root: Path) -> list[str]:
    return sorted(one.path.relative_to(root).as_posix() for one in inventory(root).files)


def damaged(root: Path) -> list[str]:
    return [one.file.relative_to(root).as_posix() for one in inventory(root).all_damage()]


def flip(seed: int) -> Harm:
    def harm(path: Path) -> None:
        content, draw = bytearray(path.read_bytes()), random.Random(seed)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)

    return harm


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HARMS: dict[str, Harm] = {
    **{f"flip {seed}": flip(seed) for seed in range(2)},
    "truncate": truncate,
    "delete": Path.unlink,
}


def harmed(root: Path, file: str) -> Iterator[str]:
    """Harm one file in every way, one after the other; it is whole again behind each."""
    path, stat = root / file, (root / file).stat()
    content = path.read_bytes()
    for name, harm in HARMS.items():
        harm(path)
        yield name
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_every_file_of_a_scan_and_its_index_has_a_digest(whole: Path) -> None:
    assert {*known(whole), *SELF_CHECKING} == scan_files(whole)
    assert damaged(whole) == []


def test_verify_says_that_all_is_well(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", str(whole))
    count = len(inventory(whole).files)
    assert (code, err) == (0, "")
    assert out.startswith(f"all {count} files are as they were written (")


def test_verify_names_exactly_the_file_that_is_harmed(study: Path) -> None:
    for file in known(study):
        for harm in harmed(study, file):
            assert damaged(study) == [file], (file, harm)
    assert damaged(study) == []


def test_verify_names_both_of_two_files_that_were_swapped(study: Path) -> None:
    files = known(study)
    for one, other in zip(files, files[1:], strict=False):
        left, right = (study / one).read_bytes(), (study / other).read_bytes()
        if left == right:
            continue
        (study / one).write_bytes(right)
        (study / other).write_bytes(left)
        assert sorted(damaged(study)) == [one, other]
        (study / one).write_bytes(left)
        (study / other).write_bytes(right)


@pytest.mark.parametrize("file", sorted(SELF_CHECKING))
def test_a_flipped_bit_among_the_digests_is_seen(file: str, study: Path) -> None:
    content = bytearray((study / file).read_bytes())
    draw = random.Random(5)
    for _ in range(30):
        place, bit = draw.randrange(len(content) - 1), 1 << draw.randrange(8)
        content[place] ^= bit
        (study / file).write_bytes(content)
        assert file in damaged(study), (place, bit)
        content[place] ^= bit


def test_what_is_made_again_while_it_is_read_is_not_damaged(study: Path) -> None:
    """As the search index, whose note goes first."""
    folder, before = StudyFolder(study), inventory(study)
    folder.index_note.unlink()
    for path in folder.matching(folder.index_array("*")):
        path.unlink()
    flip(3)(folder.array("totals"))
    seen = list(before.all_damage())
    assert len(seen) > 1
    assert [one.file for one in lasting_damage(study, seen)] == [folder.array("totals")]


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("arrays/totals.npy", "or scan the same text into another folder"),
        ("manifest.json", "or scan the same text into another folder"),
        ("vocabulary.parquet", "or scan the same text into another folder"),
        ("prepared/promoted.npy", "prepared; it is made again when it is needed"),
    ],
)
def test_verify_says_what_to_do(
    file: str, advice: str, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(3)(study / file)
    code, out, _ = run(capsys, "verify", str(study))
    assert code == 2
    lines = [line for line in out.splitlines() if line.startswith(str(study / file))]
    assert len(lines) == 1
    assert advice in lines[0]


@pytest.mark.parametrize("read_at_opening", [0, 8 << 20])
def test_no_damage_of_a_scan_is_a_traceback(
    read_at_opening: int,
    study: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 0 opening sees lengths only, as in a store of many gigabytes."""
    monkeypatch.setattr("ffmem.store.scan_store.READ_AT_OPENING", read_at_opening)
    for file in [*known(study), "manifest.json"]:
        if file.startswith("prepared"):
            continue
        for harm in harmed(study, file):
            for words in (["show", str(study), "L2.7"], ["search", str(study), "--token", "e"]):
                code, _, err = run(capsys, *words)
                assert code in (0, 2), (file, harm, words)
                if code == 2:
                    assert len(err.splitlines()) == 1
                    assert file in err, (file, harm, err)
                if read_at_opening:
                    assert code == 2, (file, harm, words)


def test_a_damaged_index_is_made_again(study: Path) -> None:
    truncate(study / "prepared" / "promoting_rows.npy")
    store = ScanStore.open(study)
    assert not is_current_index(store)
    heard: list[str] = []
    MemoryIndex.open(store, heard.append)
    assert heard
    assert is_current_index(store)
    assert damaged(study) == []


def test_a_damaged_scan_is_neither_indexed_nor_analysed(
    relu: LanguageModel, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.store.scan_store.READ_AT_OPENING", 0)
    path = study / "arrays" / "trigger_coefficients.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # still a number, perhaps still in order
    path.write_bytes(content)
    store = ScanStore.open(study)
    (study / "prepared" / "made.json").unlink()
    with pytest.raises(StoreError, match="trigger_coefficients"):
        MemoryIndex.open(store)
    with pytest.raises(StoreError, match="trigger_coefficients"):
        run_analyses(StudyInputs(relu, store, SMALL_SIZES), ("values",), study, again=("values",))


def test_a_result_that_is_cut_off_is_refused_or_made_again(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truncate(study / "analyses" / "values.json")
    code, _, err = run(capsys, "report", str(study))
    assert code == 2
    assert "values.json cannot be read as a result; delete it" in err
    words = ["--only", "values", "--size", "small", "--no-figures", "--device", "cpu"]
    assert run(capsys, "analyse", str(study), *words)[0] == 0
    assert open_study(study).result("values")


NUMBERS: dict[str, Callable[[ScanStore], object]] = {
    "values.npz": agreement_column,
    "coefficients.npz": stored_coefficients,
    "weights.parquet": lambda store: cell_column(store, "value_norm"),
}


@pytest.mark.parametrize("file", NUMBERS)
def test_damaged_numbers_of_a_result_say_what_to_make_again(file: str, study: Path) -> None:
    store, read = ScanStore.open(study), NUMBERS[file]
    read(store)
    name = file.split(".")[0]
    for harm in (truncate, lambda path: path.write_bytes(b"")):
        harm(study / "analyses" / file)
        with pytest.raises(StoreError, match=rf"{study} --only {name} --again {name}`$"):
            read(store)


def test_the_zip_format_notices_every_flipped_bit_of_an_array(study: Path) -> None:
    path = study / "analyses" / "values.npz"
    content, draw = path.read_bytes(), random.Random(3)
    whole = next_token_ranks(StudyFolder(study))
    for _ in range(40):
        changed = bytearray(content)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with suppress(StoreError):
            np.testing.assert_array_equal(next_token_ranks(StudyFolder(study)), whole)


def test_the_advice_for_a_result_of_a_control_names_the_study(study: Path) -> None:
    control = StudyFolder(study).control("random-weights")
    assert control.again("values") == (
        f"run `ffmem analyse {study} --control random-weights --only values --again values`"
    )
    of_prefixes = StudyFolder(study).control("permuted-weights-2")
    assert of_prefixes.again("refinement") == (
        f"delete {of_prefixes.root} and run the same study again"
    )


@pytest.mark.parametrize("format_number", [0, FORMAT + 1])
def test_a_scan_of_another_format_is_refused(format_number: int, study: Path) -> None:
    manifest = read_manifest(StudyFolder(study))
    replace(manifest, format=format_number).write(StudyFolder(study))
    with pytest.raises(StoreError, match=f"store format {format_number}, this one reads {FORMAT}"):
        ScanStore.open(study)


def test_a_manifest_without_a_seal_is_refused(study: Path) -> None:
    data = json.loads((study / "manifest.json").read_text())
    del data["seal"]
    (study / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"manifest\.json has changed"):
        ScanStore.open(study)


def test_a_scan_behind_a_url_is_verified_there(
    relu: LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    text, there = tmp_path / "corpus.txt", "memory://damage/scan"
    text.write_text("\n".join(sentences(30)) + "\n", encoding="utf-8")
    run_scan(relu, plan_for(relu, text), location(there))
    memory = fsspec.filesystem("memory")
    try:
        code, out, _ = run(capsys, "verify", there)
        assert (code, out[:7]) == (0, "all 20 ")
        path = "/damage/scan/arrays/trigger_positions.npy"
        content = bytearray(memory.cat_file(path))
        content[-1] ^= 4
        memory.pipe_file(path, bytes(content))
        memory.rm("/damage/scan/vocabulary.parquet")
        code, out, _ = run(capsys, "verify", there)
        assert code == 2
        assert "arrays/trigger_positions.npy has changed since it was written" in out
        assert "vocabulary.parquet is missing" in out
        assert "2 damaged, of 20 files" in out
    finally:
        memory.rm("/damage", recursive=True)
