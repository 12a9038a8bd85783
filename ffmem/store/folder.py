"""The files of a study and their names; each is written whole or not at all."""

from __future__ import annotations

import fnmatch
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Literal
from uuid import uuid4

from ffmem.errors import StoreError, advice
from ffmem.locations import is_remote, possible, put

PART_AGE = 24 * 3600.0  # seconds after which nobody writes the part of a file any more
FileRole = Literal["scan", "index", "result", "figure", "report", "notes"]


@dataclass(frozen=True)
class StudyFolder:
    """The files of one scan and of its results. No other module knows a file name."""

    root: Path

    @property
    def manifest(self) -> Path:
        """Model, corpus and settings; written last, so a folder that has it is complete."""
        return self.root / "manifest.json"

    @property
    def checkpoint(self) -> Path:
        """The state of a scan that is not finished."""
        return self.root / "checkpoint.safetensors"

    @property
    def parts(self) -> Path:
        """The states of a distributed scan's processes so far."""
        return self.root / "parts"

    @property
    def remedy(self) -> str:
        """The advice for a finished scan that is damaged."""
        return f"delete {self.manifest} and run the same `ffmem scan` command again"

    def remedy_for(self, error: Exception) -> str:
        """The advice for a file that cannot be read; one without permission is not damaged."""
        return advice(error) if isinstance(error, PermissionError) else self.remedy

    def part(self, name: str) -> Path:
        """The state of one such process, or of several merged ones."""
        return self.parts / f"{name}.safetensors"

    @cached_property
    def arrays(self) -> Path:
        """The memory-mapped arrays."""
        return self.root / "arrays"

    def array(self, name: str) -> Path:
        """One memory-mapped array."""
        return self.arrays / f"{name}.npy"

    def table(self, name: str) -> Path:
        """One Parquet table."""
        return self.root / f"{name}.parquet"

    @property
    def index(self) -> Path:
        """The search index, built from the other files; can be deleted at any time."""
        return self.root / "prepared"

    @property
    def index_note(self) -> Path:
        """The sources of the index; written last."""
        return self.index / "made.json"

    def index_array(self, name: str) -> Path:
        """One array of the index."""
        return self.index / f"{name}.npy"

    @property
    def related_words(self) -> Path:
        """Word vectors of the text, for the search by related words."""
        return self.index / "related-words.npz"

    @cached_property
    def analyses(self) -> Path:
        """The results of analyses."""
        return self.root / "analyses"

    def result(self, name: str) -> Path:
        """The result of an analysis; `*` in the name stands for any text."""
        return self.analyses / f"{name}.json"

    def numbers(self, name: str) -> Path:
        """The arrays, per cell or place, that belong to the result of that name."""
        return self.weights if name == self.weights.stem else self.analyses / f"{name}.npz"

    @cached_property
    def weights(self) -> Path:
        """The table of the weights analysis, one row per memory."""
        return self.analyses / "weights.parquet"

    def failure(self, name: str) -> Path:
        """The traceback of an analysis that failed."""
        return self.root / "failures" / f"{name}.txt"

    @property
    def figures(self) -> Path:
        """Charts: each as a page, two pictures, and the data behind it."""
        return self.root / "figures"

    def figure(self, name: str, ending: str) -> Path:
        """One form of a chart."""
        return self.figures / f"{name}.{ending}"

    @property
    def report_page(self) -> Path:
        """The report as a page that opens offline."""
        return self.root / "report.html"

    @property
    def report_text(self) -> Path:
        """The report in Markdown."""
        return self.root / "report.md"

    @property
    def report_numbers(self) -> Path:
        """Every number of the report."""
        return self.root / "numbers.json"

    @cached_property
    def annotations(self) -> Path:
        """The default database of annotations."""
        return self.root / "annotations.sqlite"

    @property
    def control(self) -> StudyFolder:
        """The study of an untrained model of the same shape."""
        return StudyFolder(self.root / "control-random-weights")

    def other_settings(self, name: str) -> StudyFolder:
        """Results that are not the study's own, in a folder named by their settings."""
        return StudyFolder(self.root / "other-settings" / name)

    def scans_inside(self) -> list[StudyFolder]:
        """The finished scans one folder further down."""
        manifests = self.root.glob(f"*/{self.manifest.name}")
        return [StudyFolder(folder) for folder in sorted({path.parent for path in manifests})]

    def notes(self) -> tuple[Path, ...]:
        """The files that can hold digests of files written after the scan."""
        return tuple(map(notes_path, (self.report_page, self.result("*"), self.figure("*", "*"))))

    def later_files(self) -> list[Path]:
        """The existing results, figures and reports, each with its digest file."""
        reports = (self.report_page, self.report_text, self.report_numbers)
        return [
            *self.analyses.glob("*"),
            *self.figures.glob("*"),
            *(path for path in reports if path.exists()),
        ]

    def matching(self, pattern: Path) -> list[Path]:
        """The existing files that match a path with a `*` in its name, in order."""
        if is_remote(pattern):
            return sorted(pattern.parent.glob(pattern.name))
        try:
            names = os.listdir(pattern.parent)
        except FileNotFoundError:
            return []
        return [pattern.with_name(name) for name in sorted(fnmatch.filter(names, pattern.name))]

    def name(self, path: Path) -> str:
        """The path of one of the files below the folder, with / on every machine."""
        return "/".join(path.parts[len(self.root.parts) :])

    def role(self, path: Path) -> FileRole:
        """A description of one of the files."""
        if path == notes_path(path):
            return "notes"
        if path in (self.report_page, self.report_text, self.report_numbers):
            return "report"
        roles: dict[Path, FileRole] = {
            self.index: "index",
            self.analyses: "result",
            self.figures: "figure",
        }
        return roles.get(path.parent, "scan")


def notes_path(path: Path) -> Path:
    """The file that holds the digest of a file written after the scan."""
    return path.with_name("digests.jsonl")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written, before the work, without creating it.

    A folder that holds a scan passes: perhaps nothing has to be written.
    """
    if is_remote(possible(folder)) or StudyFolder(folder).manifest.exists():
        return
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise StoreError(f"cannot write {folder}: {there} is not a folder; choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(
            f"cannot write {folder}: nothing can be written into {there}; ask its owner for "
            "permission, or choose another folder"
        )


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in place in one step.

    A killed run leaves the old file or the new one, never half of one. A disk that is full, or a
    folder that cannot be written, is a StoreError, and the part is removed.
    """
    prepare_target(path)
    if is_remote(path):
        write_remote(path, write)
        return
    part = path.parent / f"{path.name}.{uuid4().hex[:8]}.part"  # of this writer alone
    with write_errors(path):
        try:
            write(part)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        remove_old_parts(path)


def remove_old_parts(path: Path) -> None:
    """Delete temporary files of killed processes; younger ones may be in use."""
    for part in path.parent.glob(f"{escape(path.name)}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > PART_AGE:
                part.unlink()


def prepare_target(path: Path) -> None:
    """Create the folder for a file that will be written; refuse an impossible path."""
    if is_remote(possible(path)):
        return
    with write_errors(path):
        if path.exists() and not path.is_file():  # a device would be gone, replaced by a plain file
            raise StoreError(
                f"cannot write {path}: it is there and not a file; choose another name"
            )
        path.parent.mkdir(parents=True, exist_ok=True)


def write_remote(path: Path, write: Callable[[Path], object]) -> None:
    """Write a local file, then copy it to `path`."""
    with write_errors(path), tempfile.TemporaryDirectory(prefix="ffmem-") as folder:
        here = Path(folder) / path.name
        write(here)
        put(here, path)


def remove_folder(folder: Path) -> None:
    """Delete a folder and the files in it, if it exists."""
    if not folder.exists():
        return
    for file in list(folder.iterdir()):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # where storage has no folders they go with their files
        folder.rmdir()


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a StoreError with one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"cannot write {path}: {reason}; what was saved before is intact, so make room or "
            "choose another folder and run the same command again"
        ) from error
