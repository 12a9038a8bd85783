"""A damaged file is always noticed by `ffmem verify`, and never a traceback elsewhere."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.execution.run import run_scan
from ffmem.locations import location
from ffmem.models.language_model import LanguageModel
from ffmem.report.build import write_report
from ffmem.store import digests
from ffmem.store.bit_rows import BitRows, pack
from ffmem.store.digests import write_and_note
from ffmem.store.lookup import MemoryIndex
from ffmem.store.range_checks import range_damage
from ffmem.store.result_files import read_result
from ffmem.store.scan_store import ScanStore
from ffmem.store.search_index import is_current_index
from ffmem.store.verification import inventory
from ffmem.studies.inputs import SMALL_SIZES, StudyInputs
from ffmem.studies.runner import run_analyses
from ffmem.studies.study import open_study
from tests.analyses.conftest import FEW_LINES, scanned_lines
from tests.cli.test_commands import run
from tests.execution.small_scans import plan_for, sentences

NOTES = "digests.jsonl"
SELF_CHECKING = {"manifest.json", "prepared/made.json", NOTES, f"analyses/{NOTES}"}
Harm = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan with its search index, one analysis, one figure's files and a report."""
    out = tmp_path_factory.mktemp("damage") / "study"
    store = scanned_lines(relu, out, [*FEW_LINES, "café 東京"])
    MemoryIndex.open(store)
    run_analyses(StudyInputs(relu, store, SMALL_SIZES), ("values",), out)
    found = open_study(out)
    save_one_figure(found.charts)(out / "figures")
    write_report(found)
    return out


def save_one_figure(charts: dict[str, object]) -> Callable[[Path], object]:
    from ffmem.figures.saving import save

    name = sorted(charts)[0]
    return lambda folder: save(charts[name], folder, name)  # type: ignore[arg-type]


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "study"))


def files_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def damaged(root: Path) -> list[str]:
    return [damage.file for damage in inventory(root).all_damage()]


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


def test_every_file_of_a_study_has_a_digest(whole: Path) -> None:
    found = inventory(whole)
    assert set(found.files) | SELF_CHECKING | {f"figures/{NOTES}"} == set(files_of(whole))
    assert not found.results_without
    assert not found.scans_without
    assert damaged(whole) == []


def test_verify_says_that_all_is_well(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", str(whole))
    count = len(inventory(whole).files)
    assert (code, err) == (0, "")
    assert out.startswith(f"all {count} files are as they were written (")


def test_verify_names_exactly_the_file_that_is_harmed(study: Path) -> None:
    for file in inventory(study).files:
        for harm in harmed(study, file):
            assert damaged(study) == [file], (file, harm)
    assert damaged(study) == []


def test_verify_names_both_of_two_files_that_were_swapped(study: Path) -> None:
    files = sorted(inventory(study).files)
    for one, other in zip(files, files[1:], strict=False):
        left, right = (study / one).read_bytes(), (study / other).read_bytes()
        if left == right:
            continue
        (study / one).write_bytes(right)
        (study / other).write_bytes(left)
        assert sorted(damaged(study)) == [one, other]
        (study / one).write_bytes(left)
        (study / other).write_bytes(right)


@pytest.mark.parametrize("file", sorted({*SELF_CHECKING, f"figures/{NOTES}"}))
def test_a_flipped_bit_among_the_digests_is_seen(file: str, study: Path) -> None:
    content = bytearray((study / file).read_bytes())
    draw = random.Random(5)
    for _ in range(30):
        place, bit = draw.randrange(len(content) - 1), 1 << draw.randrange(8)
        content[place] ^= bit
        (study / file).write_bytes(content)
        assert file in damaged(study), (place, bit)
        content[place] ^= bit


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("arrays/totals.npy", "manifest.json and run the same `ffmem scan` command again"),
        ("manifest.json", "run the same `ffmem scan` command again"),
        ("vocabulary.parquet", "run the same `ffmem scan` command again"),
        ("prepared/promoted.npy", "prepared; it is made again when it is needed"),
        ("analyses/values.json", "--only values --again values"),
        ("analyses/values.npz", "--only values --again values"),
        ("report.html", "ffmem report"),
        (f"analyses/{NOTES}", "delete it"),
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
    scan_files = [file for file in inventory(study).files if file.endswith((".npy", ".parquet"))]
    for file in [*scan_files, "manifest.json"]:
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


@pytest.mark.parametrize("command", ["report", "analyse"])
def test_a_damaged_result_is_refused_or_made_again(
    command: str, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study / "analyses" / "values.json"
    text = path.read_text()
    digit = text.index("0.") + 2
    path.write_text(text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :])
    with pytest.raises(StoreError, match=r"values\.json has changed since it was written"):
        read_result(path)
    if command == "report":
        code, _, err = run(capsys, "report", str(study))
        assert code == 2
        assert "values.json" in err
        return
    words = ["--only", "values", "--size", "small", "--no-figures", "--device", "cpu"]
    code, _, _ = run(capsys, "analyse", str(study), *words)
    assert code == 0
    assert "analyses/values.json" not in damaged(study)


def without_digests(root: Path) -> ScanStore:
    """Make the manifest one of the time before digests."""
    data = json.loads((root / "manifest.json").read_text())
    for name in ("files", "seal"):
        del data[name]
    (root / "manifest.json").write_text(json.dumps(data | {"format": 1}))
    return ScanStore.open(root)


def changed(root: Path, name: str, value: float, place: tuple[int, ...] = (0, 0)) -> None:
    path = root / "arrays" / f"{name}.npy"
    stored = ScanStore.open(root).array(name)
    array = np.array(stored, np.int64 if name == "fires" else None)  # as older scans have it
    array[place[: array.ndim]] = value
    np.save(path, pack(array) if isinstance(stored, BitRows) else array)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trigger_coefficients", np.nan),
        ("trigger_coefficients", -1e9),  # of the first: the next one is larger
        ("trigger_sentences", 4_000_000),
        ("trigger_positions", 60_000),
        ("sentence_numbers", 3_000_000),
        ("sentence_text", 0xFF),
        ("sentence_starts", 1 << 40),
        ("sentence_text_starts", -5),
        ("sentence_token_ends", 1 << 30),
        ("fires", 1 << 50),
        ("fires", -1),
        ("largest", np.nan),
    ],
)
def test_what_a_file_without_a_digest_cannot_say_is_seen(
    name: str, value: float, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = without_digests(study)
    cell = next(
        cell for cell in map(Address, [1] * 64, range(64)) if len(store.triggers(cell)) == 6
    )
    place = (store.cells.row(cell), 0)
    if name.startswith("sentence"):
        sentence = store.sentences.row(store.triggers(cell)[0].sentence)
        starts = {
            "sentence_text": store.sentences.text_starts,
            "sentence_token_ends": store.sentences.starts,
        }
        place = (int(starts[name][sentence]) if name in starts else sentence, 0)
    changed(study, name, value, place)
    code, _, err = run(capsys, "show", str(study), str(cell))
    assert code == 2
    assert name in err
    code, out, _ = run(capsys, "verify", str(study))
    assert code == 2
    kind = name.split("_")[0]
    assert f"arrays/{kind}" in out


def test_a_scan_without_digests_opens_and_verify_says_so(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = without_digests(study)
    assert list(range_damage(store)) == []
    code, out, _ = run(capsys, "verify", str(study))
    assert code == 0
    assert "could only be checked for lengths and ranges" in out
    (study / "values.parquet").write_bytes(b"PAR1 is not enough")
    code, out, _ = run(capsys, "verify", str(study))
    assert code == 2
    assert f"{study / 'values.parquet'} cannot be read" in out


def test_a_kill_between_note_and_file_leaves_the_old_file_as_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.txt"
    write_and_note(path, lambda part: part.write_text("old"))

    def killed(_self: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_and_note(path, lambda part: part.write_text("new"))
    monkeypatch.undo()
    digests.check_note(path)
    assert path.read_text() == "old"
    path.write_text("new")  # as another writer of the same file leaves it
    digests.check_note(path)
    path.write_text("bad")
    with pytest.raises(StoreError, match=r"one\.txt has changed since it was written"):
        digests.check_note(path)


def test_a_note_that_lost_its_end_does_not_take_the_next_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_and_note(tmp_path / name, lambda part: part.write_text("text"))
    notes = tmp_path / NOTES
    notes.write_bytes(notes.read_bytes()[:-20])
    write_and_note(tmp_path / "three", lambda part: part.write_text("text"))
    found, broken = digests.read_notes(notes)
    assert (set(found), broken) == ({"one", "three"}, 1)


def test_the_same_content_is_noted_once(tmp_path: Path) -> None:
    for _ in range(3):
        write_and_note(tmp_path / "one", lambda part: part.write_text("text"))
    assert len((tmp_path / NOTES).read_text().splitlines()) == 1


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
