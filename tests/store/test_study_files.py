"""A study from somebody else: nothing outside its folder is read, written, or waited for.

Every file of a study is replaced in every way; a new kind of file is covered by being there.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from ffmem.analyses.study import Study
from ffmem.annotations.database import Annotations
from ffmem.cli.main import ffmem
from ffmem.errors import StoreError
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.store.bit_rows import HEAD, WORD, BitRows, Header, pack
from ffmem.store.digests import file_digest, seal, unseal
from ffmem.store.folder import MOST, StudyFolder, writing
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import cell_column, next_token_ranks, weight_row
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.verification import UNFIT, damage_behind, inventory
from tests.cli.test_commands import run
from tests.waiting import time_limit

REFUSALS = "not written by ffmem|is missing|that leads back to itself"
SECRET = "what nobody outside may see"
FOLDERS = ("arrays", "prepared", "analyses", "figures", "report")
OTHERS = {"address": ["L1.3"], "out": ["OUT"], "files": ["SHEET"]}  # arguments beside a study
NEEDED = {
    "search": ["--token", "e"],
    "explore": ["--no-browser"],
    "annotate llm": ["--llm", "m"],
    "annotate import": ["--annotator", "Ann"],
}
EXPLORER = (
    "/",
    "/report",
    "/report/values.html",
    "/figures",
    "/api/figures",
    "/figures/values-ranks.svg",
    "/patterns",
)


def commands_on_studies(
    command: click.Command = ffmem, words: tuple[str, ...] = ()
) -> Iterator[list[str]]:
    """Every command that takes a study, as its words on the command line."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands_on_studies(inner, (*words, name))
        return
    names = [one.name or "" for one in command.params if isinstance(one, click.Argument)]
    if names[:1] in (["folder"], ["folders"]):
        studies = ["STUDY"] * (1 + (names[0] == "folders"))
        others = [word for name in names[1:] for word in OTHERS[name]]
        yield [*words, *studies, *others, *NEEDED.get(" ".join(words), [])]


@pytest.fixture(scope="module")
def whole(toy_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with everything that a study can have."""
    folder = Path(shutil.copytree(toy_study.folder, tmp_path_factory.mktemp("study") / "whole"))
    study = Study(ScanStore.open(folder))
    MemoryIndex.open(study.store)
    Annotations.open(str(study.store.folder.annotations))
    Path(f"{study.store.folder.annotations}-journal").touch()
    study.store.folder.figures.mkdir(exist_ok=True)
    for ending in ("svg", "png", "csv", "json", "html"):
        study.store.folder.figure("values-ranks", ending).write_text("{}")
    return folder


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "study"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


def replacements(path: Path, secret: Path) -> dict[str, Callable[[], object]]:
    """What somebody can put in the place of a file."""
    copy = secret.with_name("copy")
    shutil.copyfile(path, copy)
    return {
        "link outside": lambda: path.symlink_to(secret),
        "link to an equal file outside": lambda: path.symlink_to(copy),
        "link out and back in": lambda: path.symlink_to(Path("..", "..", "..", *copy.parts)),
        "link to itself": lambda: path.symlink_to(path),
        "endless device": lambda: path.symlink_to("/dev/zero"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }


def replaced(path: Path, secret: Path) -> Iterator[str]:
    """Put each thing in the place of a file; it is back behind each."""
    aside = path.with_name("aside")
    for name, put in replacements(path, secret).items():
        path.rename(aside)
        put()
        yield name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        aside.rename(path)


def test_every_file_of_a_study_is_its_own(whole: Path) -> None:
    """A new kind of file must be listed in `ffmem/store/folder.py`, and then is looked at."""
    folder = StudyFolder(whole)
    assert all(folder.is_own(path.name) for path in whole.iterdir())
    assert {path.name for path in whole.iterdir() if path.is_dir()} >= set(FOLDERS)


def test_no_file_of_a_study_can_be_anything_else(study: Path, secret: Path) -> None:
    files = [path for path in study.rglob("*") if path.is_file()]
    assert len(files) > 60
    with time_limit(60):
        for path in files:
            for what in replaced(path, secret):
                if what == "folder":
                    continue  # nothing is read from it that is not looked at itself
                for read in (ScanStore.open, inventory)[: 1 + (what == "link outside")]:
                    with pytest.raises(StoreError, match=REFUSALS) as found:
                        read(study)
                    assert path.name in str(found.value), (path, what)
        ScanStore.open(study)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_of_a_study_can_be_a_link(folder: str, study: Path) -> None:
    shutil.move(study / folder, study.parent / "elsewhere")
    (study / folder).symlink_to(study.parent / "elsewhere")
    with pytest.raises(StoreError, match=f"{folder} leads out of the study's folder"):
        ScanStore.open(study)


def test_a_link_that_stays_inside_is_read(study: Path) -> None:
    (study / "figures" / "again.svg").symlink_to("values-ranks.svg")
    ScanStore.open(study)


def test_what_lies_beside_a_study_is_not_looked_at(study: Path, secret: Path) -> None:
    (study / "text.txt").symlink_to(secret)
    ScanStore.open(study)


@pytest.mark.parametrize("words", commands_on_studies(), ids=" ".join)
def test_every_command_refuses_such_a_study(
    words: list[str],
    study: Path,
    secret: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (study / "report.html").unlink()
    (study / "report.html").symlink_to(secret)
    places = {"STUDY": str(study), "OUT": str(tmp_path / "out"), "SHEET": str(secret)}
    with time_limit(20):
        code, out, err = run(capsys, *(places.get(word, word) for word in words))
    assert code == 2
    assert "report.html leads out of the study's folder" in err
    assert SECRET not in out + err
    assert secret.read_text() == SECRET


def test_a_report_is_not_written_through_a_linked_folder(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of a study writes into the scanned control's folder, too."""
    other, control = study.with_name("other"), StudyFolder(study).control("permuted-weights").root
    shutil.move(control, other)
    control.symlink_to(other)
    before = {path: path.stat().st_mtime_ns for path in other.rglob("*")}
    code, _, err = run(capsys, "report", str(study))
    assert (code, "control-permuted-weights leads out" in err) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in other.rglob("*")} == before


def test_nothing_is_written_where_a_folder_is_a_link(tmp_path: Path) -> None:
    """Also where no scan is finished, and so none is opened."""
    study, other = tmp_path / "study", tmp_path / "other"
    study.mkdir()
    other.mkdir()
    (study / "arrays").symlink_to(other)
    with pytest.raises(StoreError, match="arrays leads out"), writing(StudyFolder(study)):
        pytest.fail("it may be written")


def test_the_explorer_serves_nothing_that_became_a_link(study: Path, secret: Path) -> None:
    with TestClient(create_app(open_context(study)), base_url="http://127.0.0.1:8600") as client:
        for path in (study / "report.html", study / "figures" / "values-ranks.svg"):
            for what in replaced(path, secret):
                for page in EXPLORER:
                    with time_limit(20):
                        answer = client.get(page)
                    assert SECRET not in answer.text, (path, what, page)
                    assert answer.status_code < 500, (path, what, page)


def test_a_file_that_is_read_whole_has_a_bound(study: Path) -> None:
    os.truncate(study / "report.html", MOST + 1)  # which takes no room on the disk
    with pytest.raises(StoreError, match=r"report\.html has more than 256 MB"):
        ScanStore.open(study)


@pytest.mark.parametrize(
    "name", ["../../secret.txt", "/etc/passwd", "arrays/../../secret.npy", "arrays/a/b.npy", "\x1b"]
)
@pytest.mark.parametrize("note", ["manifest.json", "prepared/made.json"])
def test_no_list_of_files_can_name_one_elsewhere(
    note: str, name: str, study: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = unseal(json.loads((study / note).read_text()))
    data["files"][name] = {"bytes": len(SECRET), "sha256": "0" * 64}
    (study / note).write_text(json.dumps(seal(data)))
    code, out, err = run(capsys, "verify", str(study))
    assert code == 2
    assert f"{study / note} has changed since it was written" in out + err
    assert str(secret) not in out + err


def test_small_files_that_unpack_to_much_are_refused(study: Path) -> None:
    """Before anything is unpacked."""
    folder, much = StudyFolder(study), 10**8
    with (
        zipfile.ZipFile(folder.numbers("values"), "w", zipfile.ZIP_DEFLATED) as file,
        file.open("ranks.npy", "w") as array,
    ):
        for _ in range(4 * much // 10**6):
            array.write(bytes(10**6))
    ends = pa.table({"value_norm": pa.array(np.zeros(much // 2, np.float32))})
    pq.write_table(ends, folder.weights, row_group_size=much, use_dictionary=True)
    assert folder.weights.stat().st_size + folder.numbers("values").stat().st_size < 1 << 20
    store = ScanStore.open(study)
    for read in (lambda: next_token_ranks(folder), lambda: cell_column(store, "value_norm")):
        with pytest.raises(StoreError, match=r"would unpack to [345]00,00"):
            read()
    with pytest.raises(StoreError, match=r"would unpack to"):
        weight_row(store, 3)


def test_a_text_that_many_rows_repeat_takes_room_once(study: Path) -> None:
    """A million rows of one text of a megabyte would be a terabyte; longer ones are refused."""
    folder, rows = StudyFolder(study), 10**6
    store = ScanStore.open(study)
    for size in (1 << 20, 1 << 27):
        table = pa.table(
            {"class": pa.DictionaryArray.from_arrays(np.zeros(rows, "i4"), ["a" * size])}
        )
        pq.write_table(
            table, folder.weights, compression="zstd", row_group_size=rows, write_statistics=False
        )
        assert folder.weights.stat().st_size < 1 << 20
        said = "would unpack to" if size > 1 << 20 else "is of another scan"
        with pytest.raises(StoreError, match=said):
            cell_column(store, "class")


def test_a_head_alone_takes_no_memory() -> None:
    head = Header(b"<u4", 0, 1 << 40, 1, 0, 0, 0)
    data = np.frombuffer(np.array(head, HEAD).tobytes() + bytes(WORD), np.uint8)
    with pytest.raises(ValueError, match="cannot hold"):
        BitRows(data)


def changed(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Plain data with one value changed."""
    copy = data.copy()
    copy[path[0]] = changed(copy[path[0]], path[1:], value) if path[1:] else value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("layers", 0, 0), -1),
        (("layers", 0, 1), -5),
        (("layers", 0, 1), "64"),
        (("layers", 0, 1), 1e308),
        (("layers", 1), [1, 64]),
        (("layers",), 5),
        (("layers",), {"1": 64}),
        (("counts", "prefixes"), None),
        (("counts",), []),
        (("signed",), "no"),
        (("signed",), True),
        (("key", "settings", "top"), -3),
        (("key", "settings", "top"), "6"),
        (("key", "model", "name"), {}),
        (("key",), None),
        (("mixtures",), {"1": {"experts": 10**12, "size": 1, "shared": []}}),
        (("files", "arrays/fires.npy", "bytes"), -1),
        (("files", "arrays/fires.npy"), 7),
        (("versions",), [[[[]]]]),
        (("format",), "1"),
    ],
    ids=str,
)
def test_a_manifest_that_says_what_no_scan_is_is_refused(
    path: tuple[str | int, ...], value: Any, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = changed(unseal(json.loads((study / "manifest.json").read_text())), path, value)
    (study / "manifest.json").write_text(json.dumps(seal(data)))
    for words in (["show", str(study), "L1.3"], ["verify", str(study)]):
        code, out, err = run(capsys, *words)
        assert code == 2
        assert "manifest.json" in out + err or "version of ffmem" in out + err


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "", "NaN", "7", "null", "\udce4"]
)
@pytest.mark.parametrize("file", ["manifest.json", "analyses/values.json", "numbers.json"])
def test_json_that_is_none_or_too_deep_is_refused(
    file: str, text: str, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study / file).write_text(text, errors="surrogateescape")
    words = ("compare", str(study), str(study), "--json")
    code, out, err = run(capsys, *words)
    if file == "numbers.json":  # which is made again from the results
        assert (code, len(json.loads(out)["studies"])) == (0, 2)
    else:
        assert (code, file.rpartition("/")[2] in err) == (2, True)
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_thresholds_that_are_none_are_refused(value: float, study: Path) -> None:
    path = study / "arrays" / "thresholds.npy"
    np.save(path, np.full_like(np.load(path), value))
    data = unseal(json.loads((study / "manifest.json").read_text()))
    digest = file_digest(path)
    data["files"]["arrays/thresholds.npy"] = {"bytes": digest.bytes, "sha256": digest.sha256}
    (study / "manifest.json").write_text(json.dumps(seal(data)))
    with pytest.raises(StoreError, match=r"thresholds\.npy holds no thresholds"):
        ScanStore.open(study)


@pytest.mark.usefixtures("few_figures")
def test_no_escape_sequence_of_a_study_reaches_a_terminal(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;title\x07\x9b31m"
    data = unseal(json.loads((study / "manifest.json").read_text()))
    data["key"]["model"] |= {"name": evil, "revision": evil}
    data["key"]["corpus"]["path"] = evil
    vocabulary = pq.read_table(study / "vocabulary.parquet")
    texts = pa.array([evil] * len(vocabulary))
    where = vocabulary.schema.get_field_index("text")
    pq.write_table(vocabulary.set_column(where, "text", texts), study / "vocabulary.parquet")
    files = data["files"] | {
        "vocabulary.parquet": asdict(file_digest(study / "vocabulary.parquet"))
    }
    (study / "manifest.json").write_text(json.dumps(seal(data | {"files": files})))
    for words in (
        ["show", str(study), "L1.3"],
        ["show", str(study), "L1.3", "--json"],
        ["search", str(study), "--token", evil],
        ["compare", str(study), str(study)],
        ["report", str(study)],
        ["show", str(study), f"L1.{evil}"],
    ):
        _, out, err = run(capsys, *words)
        assert out + err
        assert not {"\x1b", "\x9b", "\x07"} & set(out + err), words


CONTRADICTIONS: dict[str, Any] = {  # what each array or table says instead
    "trigger_positions": 60_000,
    "sentence_numbers": -1,
    "sentence_starts": 10**15,
    "sentence_text": 0xFF,
    "promoted": 10**9,
}


def forge(study: Path, name: str, value: Any) -> None:
    """Fill an array, or the tokens that values promote, with a number; the digests are right."""
    folder = StudyFolder(study)
    if name == "promoted":
        path = folder.table("values")
        table = pq.read_table(path)
        where = table.schema.get_field_index(name)
        column = pa.array([[value] * 20] * len(table), table.schema.field(where).type)
        pq.write_table(table.set_column(where, table.schema.field(where), column), path)
    else:
        path = folder.array(name)
        stored = ScanStore.open(study).array(name)
        filled = np.full(stored.shape, value, stored.dtype)
        np.save(path, pack(filled) if isinstance(stored, BitRows) else filled)
    data = unseal(json.loads(folder.manifest.read_text()))
    data["files"][folder.name(path)] = asdict(file_digest(path))
    folder.manifest.write_text(json.dumps(seal(data)))
    shutil.rmtree(folder.index)


def opened(study: Path) -> StudyContext | Exception:
    """The study in the explorer, or why it cannot be."""
    try:
        return open_context(study)
    except UNFIT as error:
        return error


@pytest.mark.usefixtures("few_figures")
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contents_that_contradict_one_another_are_one_sentence(
    name: str, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(study, name, CONTRADICTIONS[name])
    blamed = f"{study} is damaged or was not written by ffmem"
    for words in (
        ["show", str(study), "L1.3"],
        ["search", str(study), "--words", "the"],
        ["search", str(study), "--token", "e"],
        ["compare", str(study), str(study)],
        ["report", str(study)],
    ):
        code, _, err = run(capsys, *words)
        assert code == 0 or (code == 2 and blamed in err and len(err.splitlines()) == 1), words
    assert code == 2  # the report reads every array
    explored = opened(study)
    if isinstance(explored, Exception):
        assert blamed in str(damage_behind(explored, [study]))  # as `ffmem explore` says
        return
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as client:
        for page in ("/memory/L1.3", "/api/memories/L1.3", "/search?by=words&q=the"):
            answer = client.get(page)
            assert answer.status_code == 200 or blamed in unescape(answer.text), page
