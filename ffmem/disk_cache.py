"""The cache on disk: entries computed once, found again by a digest of their inputs.

An entry is a folder `KIND/ADDRESS` inside the cache folder, with a note of the length and SHA-256
of its files. It is written under another name, brought to the disk and then renamed, so a kill
leaves nothing half-made in its place, and of two writers one comes first. An entry that is not as
it was written is removed, and made again. Nothing depends on the cache: where it cannot be written,
things are made each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ffmem.errors import FfmemError, refusals
from ffmem.locations import cache_folder

FROM_WEIGHTS = ("gguf", "values", "digests")  # what is made again from a model, at a cost of time
NOTE = "entry.json"  # of an entry: what it is, and its files; written last
NO_NOTE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what is none raises
DIGEST = "digest.txt"
PART = "part-"  # begins the names of folders that are being written or removed
PART_AGE = 24 * 3600.0  # seconds after which nobody writes such a folder any more
ALWAYS_READ = 16 * 2**20  # bytes of a file up to which its checksum is looked at every time


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache; `last_used` in seconds since 1970."""

    kind: str
    name: str
    about: str
    bytes: int
    last_used: float


def address_of(*facts: object) -> str:
    """An address made of all that decides what an entry holds."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def find(kind: str, address: str) -> Path | None:
    """The folder of an entry, or None; one that is damaged is removed."""
    entry = cache_folder() / kind / address
    if not os.path.exists(entry):  # which asks nothing of a path that cannot be
        return None
    with suppress(OSError, *NO_NOTE):
        files = json.loads((entry / NOTE).read_bytes())["files"]
        if all(_is_as_written(entry / name, known) for name, known in files.items()):
            with suppress(OSError):  # somebody else's cache, which may be read
                os.utime(entry)
            return entry
    with suppress(OSError):
        _remove(entry)
    return None


def keep(kind: str, address: str, about: str, write: Callable[[Path], object]) -> Path | None:
    """Let `write` fill the folder of a new entry; None where the disk does not take it.

    An entry that another process has put there meanwhile stays.
    """
    entry = cache_folder() / kind / address
    with suppress(OSError, SafetensorError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        _remove_old_parts(entry.parent)
        part = Path(tempfile.mkdtemp(dir=entry.parent, prefix=PART))
        try:
            write(part)
            _write_note(part, about)
            if find(kind, address) is None:
                part.rename(entry)
                _bring_to_disk(entry.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return find(kind, address)


def file_identity(files: Iterable[Path]) -> str:
    """An address for files as they lie there now, made without reading them."""
    facts = []
    for file in sorted(one.resolve() for one in files):
        about = file.stat()
        facts.append((str(file), *_stamp(about), about.st_size))
    return address_of(facts)


def digest_once(identity: str, about: str, compute: Callable[[], str]) -> str:
    """A digest of what has this identity: the one that was kept, or computed now and kept."""
    entry = find("digests", identity)
    if entry is not None:
        return (entry / DIGEST).read_text()
    digest = compute()
    keep("digests", identity, about, lambda part: (part / DIGEST).write_text(digest))
    return digest


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_entries() -> Iterator[CacheEntry]:
    """Every entry in the cache folder, including those of other parts of ffmem."""
    for kind in cache_kinds():
        for path in sorted((cache_folder() / kind).iterdir()):
            with suppress(OSError):  # removed by another process while this one looks
                yield CacheEntry(kind, path.name, _about(path), _size(path), path.stat().st_mtime)


def cache_kinds() -> list[str]:
    """The kinds of things that are in the cache."""
    root = cache_folder()
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def clear_cache(kinds: Iterable[str]) -> int:
    """Remove everything of these kinds; how many bytes that were."""
    wanted = set(kinds)
    removed = sum(entry.bytes for entry in cache_entries() if entry.kind in wanted)
    for kind in sorted(wanted):
        folder = cache_folder() / kind
        with refusals(f"{folder} cannot be removed", FfmemError), suppress(FileNotFoundError):
            shutil.rmtree(folder)
    return removed


def _write_note(part: Path, about: str) -> None:
    files = [path for path in sorted(part.rglob("*")) if path.is_file()]
    for path in files:
        _bring_to_disk(path)
    known = {path.relative_to(part).as_posix(): _description(path) for path in files}
    (part / NOTE).write_text(json.dumps({"about": about, "files": known}, indent=1))
    _bring_to_disk(part / NOTE)
    _bring_to_disk(part)


def _description(path: Path) -> dict[str, Any]:
    about = path.stat()
    return {"bytes": about.st_size, "stamp": _stamp(about), "sha256": file_digest(path)}


def _is_as_written(path: Path, known: dict[str, Any]) -> bool:
    """Whether a file is the one that was noted.

    Of a large file that nobody has touched since only the length is looked at.
    """
    about = path.stat()
    if about.st_size != known["bytes"]:
        return False
    untouched = _stamp(about) == known["stamp"]
    return (untouched and about.st_size > ALWAYS_READ) or file_digest(path) == known["sha256"]


def _stamp(about: os.stat_result) -> list[int]:
    """The stamp of a file, which changes when it is written, replaced or touched."""
    return [about.st_mtime_ns, about.st_ctime_ns, about.st_ino]


def _bring_to_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _remove(entry: Path) -> None:
    """Take an entry away in one step, then delete it."""
    aside = Path(tempfile.mkdtemp(dir=entry.parent, prefix=PART))
    try:
        entry.rename(aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_old_parts(folder: Path) -> None:
    """Delete what killed processes have left."""
    for part in folder.glob(f"{PART}*"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > PART_AGE:
                shutil.rmtree(part, ignore_errors=True)


def _about(path: Path) -> str:
    with suppress(OSError, *NO_NOTE):
        return str(json.loads((path / NOTE).read_bytes())["about"])
    return "not finished" if path.name.startswith(PART) else ""


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files if file.is_file())
