"""A command that is killed wherever it puts a file in its place goes on as if nothing had been.

`publish` puts every file and folder in its place, and the database of annotations has commits. At
each of these moments all files are copied, as a kill would leave them; in every copy the same
command runs again, and leaves the same as a command that nobody has killed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, event

from ffmem.cli import main as cli
from ffmem.files import whole_files
from ffmem.store.folder import StudyFolder
from ffmem.store.verification import inventory
from tests.annotations.test_sheets import filled
from tests.execution.small_scans import sentences
from tests.models.fairseq_files import write_toy
from tests.small_study import drawing_few_figures

SCAN = "scan model text.txt -o D -k 26 --sample 1 --layers 3"
REPORT = ("report.html", "report.md", "numbers.json")
# Each command, and what is removed before it from a study that is finished.
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "scan": (SCAN, ("D", "cache/values")),  # which also keeps values in the cache
    "study": (
        SCAN.replace("scan", "study", 1) + " --only last-layer --no-controls --size small",
        ("D/analyses", *(f"D/{name}" for name in REPORT)),
    ),
    "analyse": (
        "analyse D --only values,last-layer --sample 9 --no-figures",
        ("D/analyses",),
    ),
    "analyse again": ("analyse D --only last-layer --again last-layer --sample 9", ()),
    "report": ("report D", tuple(f"D/{name}" for name in REPORT)),
    "annotate sheets": ("annotate sheets D S --keys 1 --seed 1", ()),
    "annotate import": ("annotate import D S --annotator mara --skip-empty", ()),
    "patch": ("patch model --set L1.1=0 -o P", ()),
    "convert": ("models convert fairseq -o C", ()),
}
OF_A_RUN = {"seconds", "seal", "took"}  # which differ between equal results


def run(words: str, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("FFMEM_CACHE", str(world / "cache"))
    assert cli.run(words.split()) == 0, words


pytestmark = pytest.mark.usefixtures("few_figures")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a text, and a study that is finished, with sheets filled in."""
    from ffmem.models.loading import load

    world = tmp_path_factory.mktemp("crash") / "world"
    world.mkdir()
    toy = load("tiny:opt")
    toy.model.save_pretrained(world / "model")
    assert toy.tokenizer is not None
    toy.tokenizer.save_pretrained(world / "model")
    (world / "text.txt").write_text("\n".join(sentences(40)) + "\n", encoding="utf-8")
    write_toy(world / "fairseq")
    with pytest.MonkeyPatch.context() as patch, drawing_few_figures():
        for words in (
            SCAN,
            "analyse D --only suppression,last-layer --sample 9 --no-figures",
            "report D",
            "annotate sheets D S --keys 1",
        ):
            run(words, world, patch)
    for sheet in sorted((world / "S").glob("*.md"))[:2]:
        sheet.write_text(filled(sheet.read_text(encoding="utf-8")), encoding="utf-8")
    return world


@contextmanager
def copied_at_each_step(world: Path, into: Path) -> Iterator[list[Path]]:
    """Copies of a folder, one of each moment when something is about to be put in its place."""
    one, publish, found = threading.Lock(), whole_files.publish, list[Path]()

    def copy() -> None:
        found.append(into / str(len(found)))
        shutil.copytree(world, found[-1])

    def careful(part: Path, place: Path, *, new: bool = False) -> None:
        with one:
            copy()
            publish(part, place, new=new)

    def commit(_connection: object) -> None:
        with one:
            copy()

    event.listen(Engine, "commit", commit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_files, "publish", careful)
        yield found
    event.remove(Engine, "commit", commit)


def without_times(value: Any) -> Any:
    match value:
        case dict():
            return {key: without_times(one) for key, one in value.items() if key not in OF_A_RUN}
        case list():
            return [without_times(one) for one in value]
        case _:
            return value


def content(path: Path) -> Any:
    """What a file says, without what differs between equal results."""
    match path.suffix:
        case ".json":
            return without_times(json.loads(path.read_text(encoding="utf-8")))
        case ".npz":
            with np.load(path) as arrays:
                return {name: arrays[name].tobytes() for name in arrays}
        case ".sqlite":
            with closing(sqlite3.connect(path)) as database:
                return re.sub(r"'\d{4}-\d\d-[^']+'", "", "\n".join(database.iterdump()))
        case _:
            return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(world: Path) -> dict[str, Any]:
    """All files; but not the cache's digests of files by their inodes, which a copy changes."""
    shutil.rmtree(world / "cache" / "digests", ignore_errors=True)
    files = [path for path in sorted(world.rglob("*")) if path.is_file()]
    return {path.relative_to(world).as_posix(): content(path) for path in files}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_goes_on_as_if_nothing_had_been(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, removed = COMMANDS[name]
    # A result says how many seconds it took, and the report has a digest of the result.
    monkeypatch.setattr("ffmem.analyses.runner.time", SimpleNamespace(monotonic=lambda: 0.0))
    world = tmp_path / "world"
    shutil.copytree(finished, world)
    for path in removed:
        shutil.rmtree(world / path) if (world / path).is_dir() else (world / path).unlink()
    with copied_at_each_step(world, tmp_path / "copies") as copies:
        run(words, world, monkeypatch)
    assert copies, "nothing was put in its place"
    whole = contents(world)
    for copy in copies:
        study = StudyFolder(copy / "D")
        if study.manifest.exists():  # whoever looks meanwhile finds no damage
            assert list(inventory(study.root).all_damage()) == []
        run(words, copy, monkeypatch)
        for place in ("cache", "S"):  # where nothing is locked, parts stay for a day
            for part in (copy / place).rglob(whole_files.PARTS):
                shutil.rmtree(part) if part.is_dir() else part.unlink()
        assert contents(copy) == whole
        shutil.rmtree(copy)
