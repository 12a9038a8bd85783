"""Files and folders that are written whole or not at all; nothing is put in its place otherwise.

What is written first stands beside its place as `NAME.XXXXXXXX.part`. `publish` brings it to the
disk and gives it its name in one step, so a killed process leaves the old file, the new one, or a
part that nobody reads.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from uuid import uuid4

from ffmem.errors import FfmemError, StoreError, refusals, shorten
from ffmem.files.folder_lock import only_writer
from ffmem.locations import check_path, is_remote, put

PART = f".{'[0-9a-f]' * 8}.part"  # what the name of a part ends in
PARTS = f"*{PART}"
PART_AGE = 24 * 3600.0  # seconds after which nobody writes a part any more, where there is no lock


class AlreadyThereError(StoreError):
    """A file that must be new is there: somebody else was first."""


def publish(part: Path, place: Path, *, new: bool = False) -> None:
    """Bring a finished file or folder to the disk, then put it in its place in one step.

    A file takes the place of one that is there, unless it must be `new`; a folder never takes the
    place of one that holds something.
    """
    if is_remote(place):
        if new and place.exists():
            raise AlreadyThereError(f"{place} is there already")
        put(part, place)
        return
    for path in (*part.rglob("*"), part):
        _bring_to_disk(path)
    if new:
        _link(part, place)
    else:
        part.replace(place)
    _bring_to_disk(place.parent)


def write_whole(path: Path, write: Callable[[Path], object], *, new: bool = False) -> None:
    """Let `write` fill a file beside `path`, then put it in place in one step.

    A disk that is full, or a folder that cannot be written, is a StoreError, and the part is
    removed; a file that must be `new` and is there is an AlreadyThereError.
    """
    prepare_target(path)
    with write_errors(path):
        if is_remote(path):
            with tempfile.TemporaryDirectory(prefix="ffmem-") as folder:
                here = Path(folder) / path.name
                write(here)
                publish(here, path, new=new)
            return
        part = part_beside(path)
        try:
            write(part)
            publish(part, path, new=new)
        finally:
            part.unlink(missing_ok=True)
        remove_parts(path.parent.glob(f"{escape(path.name)}{PART}"), PART_AGE)


def write_text(path: Path, text: str, *, new: bool = False) -> None:
    """The same for a text."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"), new=new)


def part_beside(place: Path) -> Path:
    """A temporary name for what will stand at `place`, of this writer alone."""
    return place.with_name(f"{place.name}.{uuid4().hex[:8]}.part")


@contextmanager
def part_of_folder(place: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `place` at the end of the `with`; otherwise nothing stays."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = part_beside(place)
    try:
        part.mkdir()
        yield part
        publish(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def whole_folder(out: Path, kind: type[FfmemError] = FfmemError) -> Iterator[Path]:
    """A folder to fill, which becomes `out` at the end of the `with`; `out` is new or empty.

    If anything goes wrong, nothing is left. One process at a time writes such a folder.
    """
    refuse_place(out, kind)
    with refusals(f"{shorten(str(out))} cannot be written", kind):
        place = out.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(place.with_name(f"{place.name}.lock"), str(out)):
            refuse_place(out, kind)
            remove_parts(place.parent.glob(f"{escape(place.name)}{PART}"))
            with part_of_folder(place) as part:
                yield part


def refuse_place(out: Path, kind: type[FfmemError] = FfmemError) -> None:
    """Refuse a place at a URL, below a file, or where something is, so that nothing is lost."""
    if is_remote(out):
        raise kind(f"{out} is a URL; choose a folder on this machine, and copy it then")
    with refusals(f"{shorten(str(out))} cannot be opened", kind):
        if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
            raise kind(f"{out} is there already; choose another folder, or remove it first")
        above = next(folder for folder in out.absolute().parents if folder.exists())
        if not above.is_dir():
            raise kind(f"{out} cannot be written ({above} is a file); choose another folder")


def remove_parts(parts: Iterable[Path], age: float = 0.0) -> None:
    """Delete what killed processes have left, if nobody has written it for so many seconds."""
    for part in list(parts):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime < age:
                continue
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink()


def prepare_target(path: Path) -> None:
    """Create the folder for a file that will be written; refuse an impossible path."""
    if is_remote(check_path(path)):
        return
    with write_errors(path):
        if path.exists() and not path.is_file():  # a device would be gone, replaced by a plain file
            raise StoreError(
                f"cannot write {path}: it is there and not a file; choose another name"
            )
        path.parent.mkdir(parents=True, exist_ok=True)


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


def _link(part: Path, place: Path) -> None:
    """Give a file a name that is still free."""
    try:
        os.link(part, place)
    except OSError:
        if place.exists():
            raise AlreadyThereError(f"{place} is there already") from None
        part.replace(place)  # a file system without hard links
    else:
        part.unlink()


def _bring_to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # where folders cannot be opened
        return
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)
