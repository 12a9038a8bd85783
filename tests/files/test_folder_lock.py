"""One writer per folder: the second is told who is first, and a killed one is in nobody's way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest
from click.testing import CliRunner

from ffmem.cli.main import ffmem
from ffmem.errors import FfmemError, StoreError
from ffmem.execution.run import run_scan
from ffmem.files.whole_files import whole_folder
from ffmem.models.loading import load
from ffmem.store.folder import StudyFolder, writing
from ffmem.store.manifest import read_manifest
from ffmem.store.scan_store import ScanStore
from tests.execution.small_scans import plan_for, sentences


def elsewhere(folder: Path, key: str = "") -> str:
    """What another writer is told; empty where it may write."""

    def write() -> str:
        try:
            with writing(StudyFolder(folder), key):
                return ""
        except StoreError as error:
            return str(error)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(write).result()


def test_a_second_writer_is_told_who_is_first(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "D")
    with writing(study, "key of a scan"):
        for key in ("", "another key"):
            said = elsewhere(study.root, key)
            assert f"being written by process {os.getpid()} on " in said
            assert "since 2" in said
            assert "choose another folder" in said
        assert "made already, with the same settings" in elsewhere(study.root, "key of a scan")
        with writing(study):  # a study's scan, inside the study
            pass
        assert elsewhere(study.root)
        (study.root / "a file").touch()
    assert os.listdir(study.root) == ["a file"]


def test_weights_are_not_written_where_somebody_else_writes(tmp_path: Path) -> None:
    out, writer = tmp_path / "weights", CliRunner()
    command = ["weights", "tiny:opt", "-o", str(out), "--no-figures"]
    with writing(StudyFolder(out)), ThreadPoolExecutor(1) as pool:
        said = pool.submit(writer.invoke, ffmem, command).result()
        assert isinstance(said.exception, StoreError)
        assert not (out / "analyses").exists()
    assert writer.invoke(ffmem, command).exit_code == 0
    assert (out / "analyses" / "weights.parquet").exists()


def test_a_link_or_another_name_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "D").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "D")
    with writing(StudyFolder(tmp_path / "D")):
        assert elsewhere(tmp_path / "link")
        assert elsewhere(tmp_path / "D" / ".." / "D")


def test_nothing_stays_where_nothing_was_written(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing(StudyFolder(tmp_path / "D")):
        raise ZeroDivisionError
    assert not (tmp_path / "D").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from ffmem.store.folder import StudyFolder, writing
from ffmem.files.whole_files import write_whole

def write(part):
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

study = StudyFolder(Path(sys.argv[1]))
with writing(study):
    write_whole(study.array("fires"), write)
"""


def test_a_killed_writer_is_in_nobodys_way_and_what_it_left_is_removed(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "D")
    assert subprocess.run([sys.executable, "-c", KILLED, study.root]).returncode < 0
    (part,) = study.arrays.iterdir()
    inside = StudyFolder(study.root / "inside")
    with writing(inside):  # a scan of its own, under way
        theirs = inside.root / "manifest.json.01234567.part"
        theirs.touch()
        with writing(study):
            assert not part.exists()
            assert theirs.exists()


def test_a_killed_writer_of_a_whole_folder_leaves_nothing_for_ever(tmp_path: Path) -> None:
    left = tmp_path / "out.01234567.part"
    left.mkdir()
    (left / "weights").write_text("half")
    with whole_folder(tmp_path / "out") as part:
        (part / "weights").write_text("whole")
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(whole_folder(tmp_path / "out").__enter__).exception()
        assert isinstance(second, FfmemError)
        assert "being written by process" in str(second)
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out" / "weights").read_text() == "whole"


def test_where_files_cannot_be_locked_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_given: object, **_more: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with writing(StudyFolder(tmp_path / "D")), writing(StudyFolder(tmp_path / "D")):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        f"ffmem: files cannot be locked at {tmp_path / 'D'}, so let only one command write there"
    ]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences(20)) + "\n", encoding="utf-8")
    return path


def test_a_manifest_never_takes_the_place_of_another_scans(tmp_path: Path, corpus: Path) -> None:
    """Where there are no locks, two scans may both come to their end."""
    model = load("tiny:opt")
    plan = plan_for(model, corpus)
    store = run_scan(model, plan, tmp_path / "one")
    other = run_scan(model, plan_for(model, corpus, max_sentences=5), tmp_path / "other")
    before = store.folder.manifest.read_bytes()
    with pytest.raises(StoreError, match="holds another scan"):
        other.manifest.write(store.folder)
    assert store.folder.manifest.read_bytes() == before
    read_manifest(store.folder).write(store.folder)  # the same scan, as when a worker was lost
    assert ScanStore.open(store.folder.root).manifest.key == store.manifest.key


@pytest.mark.parametrize("command", ["scan", "study"])
@pytest.mark.parametrize("out", ["other things", "memory://study"])
def test_a_folder_of_other_things_and_one_that_is_lost_are_refused(
    command: str, out: str, tmp_path: Path, corpus: Path
) -> None:
    place = out if "://" in out else str(tmp_path / out)
    if "://" not in out:
        Path(place).mkdir()
        (Path(place) / "thesis.tex").write_text("mine")
    done = CliRunner().invoke(ffmem, [command, "tiny:opt", str(corpus), "-o", place])
    said = done.output + str(done.exception)
    assert done.exit_code != 0
    assert "choose a new or an empty folder" in said or "is gone when this command ends" in said
    assert "://" in out or os.listdir(place) == ["thesis.tex"]
