"""Where a scan's files lie, and how they are written: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ffmem.errors import StoreError
from ffmem.locations import is_remote, possible, put


@dataclass(frozen=True)
class StudyFolder:
    """The files of one scan. No other module knows a file name."""

    root: Path

    @property
    def manifest(self) -> Path:
        """What was scanned and how; written last, so a folder that has it is complete."""
        return self.root / "manifest.json"

    @property
    def checkpoint(self) -> Path:
        """The state of a scan that is not finished."""
        return self.root / "checkpoint.safetensors"

    @property
    def parts(self) -> Path:
        """What the processes of a scan on several of them have found so far."""
        return self.root / "parts"

    @property
    def remedy(self) -> str:
        """What to do about a finished scan that is damaged."""
        return f"delete {self.manifest} and run the same `ffmem scan` command again"

    def part(self, name: str) -> Path:
        """The state of one such process, or of some merged."""
        return self.parts / f"{name}.safetensors"

    def array(self, name: str) -> Path:
        """One memory-mapped array."""
        return self.root / "arrays" / f"{name}.npy"

    def table(self, name: str) -> Path:
        """One Parquet table."""
        return self.root / f"{name}.parquet"

    def name(self, path: Path) -> str:
        """The path of one of the files below the folder, with / on every machine."""
        return "/".join(path.parts[len(self.root.parts) :])

    def index_file(self, name: str) -> Path:
        """One file made from the others, to search them quickly; it can be deleted at any time."""
        return self.root / "prepared" / name


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in place in one step.

    A killed run leaves the old file or the new one, never half of one. A disk that is full, or a
    folder that cannot be written, is a StoreError, and the part is removed.
    """
    if is_remote(possible(path)):
        write_remote(path, write)
        return
    if path.exists() and not path.is_file():  # a device would be gone, replaced by a plain file
        raise StoreError(f"cannot write {path}: it is there and not a file; choose another name")
    part = path.parent / f"{path.name}.part"
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(part)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def write_remote(path: Path, write: Callable[[Path], object]) -> None:
    """Fill a file of this machine, then copy it to where `path` is."""
    with write_errors(path), tempfile.TemporaryDirectory(prefix="ffmem-") as folder:
        here = Path(folder) / path.name
        write(here)
        put(here, path)


def remove_folder(folder: Path) -> None:
    """Delete a folder and the files in it, if it is there."""
    if not folder.exists():
        return
    for file in list(folder.iterdir()):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # where storage has no folders they go with their files
        folder.rmdir()


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the disk says into one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"cannot write {path}: {reason}; what was saved before is intact, so make room or "
            "choose another folder and run the same command again"
        ) from error
