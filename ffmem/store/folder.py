"""The files of a study: their names, one writer at a time, and what may be read of them.

A study can be anybody's: only regular files inside its folder are read. Opening a study looks at
all of them; what is read as a whole is looked at again when it is read.
"""

from __future__ import annotations

import fnmatch
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ffmem.errors import StoreError, advice, reason, shorten
from ffmem.files.folder_lock import only_writer
from ffmem.files.whole_files import PARTS, remove_parts, write_errors
from ffmem.locations import check_path, is_remote

# The names in a study's folder, apart from its tables; anything else may lie beside them.
OWN = frozenset(
    """manifest.json checkpoint.safetensors parts arrays prepared analyses failures figures
    report report.html report.md numbers.json annotations.sqlite annotations.sqlite-journal
    annotations.sqlite-wal annotations.sqlite-shm lock""".split()  # noqa: SIM905
)
SCANNED_CONTROLS = ("permuted-weights", "random-weights")  # the second only when asked for
PREFIX_CONTROLS = (  # which read the validation prefixes, and no scan
    "permuted-weights-1",
    "permuted-weights-2",
    "random-weights-1",
    "random-weights-2",
    "random-weights-3",
)
CONTROL = "control-"


@dataclass(frozen=True)
class StudyFolder:
    """The files of one scan and of its results. No other module knows a file name."""

    root: Path

    @property
    def manifest(self) -> Path:
        """Model, corpus and settings; written last, so a folder that has it is complete."""
        return self.root / "manifest.json"

    @property
    def lock(self) -> Path:
        """The lock of the command that writes into the folder."""
        return self.root / "lock"

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
        return f"copy {self.root} again, or scan the same text into another folder"

    def again(self, analysis: str) -> str:
        """The advice for a result that is damaged, or not of this scan and version."""
        name, where = self.root.name.removeprefix(CONTROL), str(self.root)
        if self.root.name == f"{CONTROL}{name}" and name in PREFIX_CONTROLS:
            return f"delete {self.root} and run the same study again"
        if self.root.name == f"{CONTROL}{name}" and name in SCANNED_CONTROLS:
            where = f"{self.root.parent} --control {name}"
        return f"run `ffmem analyse {where} --only {analysis} --again {analysis}`"

    def remedy_for(self, path: Path, error: Exception) -> str:
        """The advice for a file that cannot be read; one without permission is not damaged."""
        if isinstance(error, PermissionError):
            return advice(error)
        return self.again(path.stem) if path.parent == self.analyses else self.remedy

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

    def report_chapter(self, name: str) -> Path:
        """One chapter of the report, as such a page."""
        return self.root / "report" / f"{name}.html"

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

    def control(self, name: str) -> StudyFolder:
        """The study of a control: a model of the same shape without what was learned."""
        return StudyFolder(self.root / f"{CONTROL}{name}")

    @property
    def controls(self) -> dict[str, StudyFolder]:
        """The controls that have results, by name."""
        every = {name: self.control(name) for name in (*SCANNED_CONTROLS, *PREFIX_CONTROLS)}
        return {name: one for name, one in every.items() if one.matching(one.result("*"))}

    @property
    def is_foreign(self) -> bool:
        """Whether the folder holds something, and nothing that ffmem writes."""
        if not self.root.is_dir():
            return False
        names = [name for name in os.listdir(self.root) if not name.startswith(".")]
        return bool(names) and not any(map(self.is_own, names))

    def scans_inside(self) -> list[StudyFolder]:
        """The finished scans one folder further down."""
        manifests = self.root.glob(f"*/{self.manifest.name}")
        return [StudyFolder(folder) for folder in sorted({path.parent for path in manifests})]

    def matching(self, pattern: Path) -> list[Path]:
        """The existing files that match a path with a `*` in its name, in order."""
        if is_remote(pattern):
            return sorted(pattern.parent.glob(pattern.name))
        try:
            names = os.listdir(pattern.parent)
        except FileNotFoundError:
            return []
        return [pattern.with_name(name) for name in sorted(fnmatch.filter(names, pattern.name))]

    def is_own(self, name: str) -> bool:
        """Whether something in the folder belongs to the study, by its name."""
        controls = (f"{CONTROL}{one}" for one in (*SCANNED_CONTROLS, *PREFIX_CONTROLS))
        return name in OWN or name.endswith((".parquet", ".part")) or name in controls

    def name(self, path: Path) -> str:
        """The path of one of the files below the folder, with / on every machine."""
        return "/".join(path.parts[len(self.root.parts) :])


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written, before the work, without creating it.

    A folder that holds a scan passes: perhaps nothing has to be written.
    """
    if is_remote(check_path(folder)) or StudyFolder(folder).manifest.exists():
        return
    if StudyFolder(folder).is_foreign:
        raise StoreError(
            f"{folder} holds other things than a scan or a study; choose a new or an empty folder"
        )
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise StoreError(f"cannot write {folder}: {there} is not a folder; choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(
            f"cannot write {folder}: nothing can be written into {there}; ask its owner for "
            "permission, or choose another folder"
        )


@contextmanager
def writing(folder: StudyFolder, key: str = "") -> Iterator[None]:
    """Be the only one who writes into a study's folder; what killed writers have left is removed.

    `key` stands for what is made there. A folder that cannot be written passes without a lock:
    perhaps nothing has to be written.
    """
    root, remote = folder.root, is_remote(folder.root)
    is_new = not remote and not root.exists()
    if not remote:
        check_folder(root)
        with write_errors(root):
            root.mkdir(parents=True, exist_ok=True)
        check_files(folder)  # a link in it would lead what is written elsewhere
        if not os.access(root, os.W_OK | os.X_OK):
            yield
            return
    try:
        with only_writer(folder.lock, str(root), key):
            if not remote:
                remove_parts(_abandoned_parts(folder))
            yield
    finally:
        if is_new:
            with suppress(OSError):  # which is not empty, as a rule
                root.rmdir()


def _abandoned_parts(folder: StudyFolder) -> list[Path]:
    """The parts in a folder, but for those of scans inside that have a lock of their own."""
    locked = {path.parent for path in folder.root.rglob(folder.lock.name)} - {folder.root}
    return [part for part in folder.root.rglob(PARTS) if not locked & set(part.parents)]


def remove_folder(folder: Path) -> None:
    """Delete a folder and the files in it, if it exists."""
    if not folder.exists():
        return
    for file in list(folder.iterdir()):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # where storage has no folders they go with their files
        folder.rmdir()


READ_WHOLE = (".json", ".html", ".svg", ".md")  # all others are mapped, or have bounds of their own


MOST = 1 << 28  # bytes of such a file


LEAST_ROOM, ROOM = 1 << 26, 8  # bytes that a packed file may unpack to, and more per byte of arrays


class ForeignError(StoreError):
    """A file of a study that is damaged or that ffmem did not write."""


def check_files(folder: StudyFolder) -> None:
    """Refuse a study that has anything but files of its own where its files belong."""
    for entry in entries(folder.root):
        if folder.is_own(entry.name):
            for path in _files_at(entry):
                study_file(folder, path)


def _files_at(entry: os.DirEntry[str]) -> Iterator[Path]:
    """A file, or all files in a folder; a link to a folder is not followed."""
    if not entry.is_dir(follow_symlinks=False):
        yield Path(entry.path)
        return
    for inner in entries(Path(entry.path)):
        yield from _files_at(inner)


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing where there is none, or at a URL, which has no links."""
    if is_remote(folder):
        return []
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from None


def study_file(folder: StudyFolder, path: Path) -> Path:
    """The path of one of a study's files; refuses what lies elsewhere, is no file or too large.

    A file that is missing passes.
    """
    real, root = os.path.realpath, folder.root
    if not (is_remote(path) or Path(real(path)).is_relative_to(real(root))):
        raise foreign(folder, path, "leads out of the study's folder")
    try:
        found = path.stat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise foreign(folder, path, "is not a file")
    if path.suffix in READ_WHOLE and found.st_size > MOST:
        raise foreign(folder, path, f"has more than {MOST >> 20} MB")
    return path


def check_unpacked_size(folder: StudyFolder, path: Path, size: int) -> None:
    """Refuse a packed file that says it unpacks to far more than the scan's arrays take."""
    if size > LEAST_ROOM + ROOM * sum(one.stat().st_size for one in folder.arrays.iterdir()):
        raise foreign(folder, path, f"would unpack to {size:,} bytes")


def read_text(folder: StudyFolder, path: Path) -> str:
    """The text of one of a study's files."""
    try:
        return study_file(folder, path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise foreign(folder, path, "is not UTF-8") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None


def read_json(folder: StudyFolder, path: Path) -> Any:
    """What one of a study's JSON files says."""
    try:
        return json.loads(read_text(folder, path), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise foreign(folder, path, "is not JSON") from None


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinity, which Python reads and which are not JSON."""
    raise ValueError(name)


def unreadable(path: Path, error: OSError) -> StoreError:
    """The error about a file that the system does not let be read."""
    return StoreError(f"{shorten(str(path))} cannot be read ({reason(error)}); {advice(error)}")


def foreign(folder: StudyFolder, path: Path, what: str) -> ForeignError:
    """The error about a file of a study that ffmem did not write, or not so."""
    name, root = shorten(folder.name(path)), shorten(str(folder.root))
    return ForeignError(f"{root} is damaged or was not written by ffmem: {name} {what}")
