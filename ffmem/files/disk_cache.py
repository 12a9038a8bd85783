"""The cache on disk: entries computed once, found again by a digest of their inputs.

An entry is a folder `KIND/ADDRESS` inside the cache folder, with a note of its files' lengths. It
is written whole or not at all, so a kill leaves nothing half-made in its place, and of two writers
one comes first. An entry whose files have other lengths is removed, and made again. Nothing depends
on the cache: where it cannot be written, things are made each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ffmem.errors import FfmemError, StoreError, refusals, shorten
from ffmem.files.whole_files import PART_AGE, PARTS, part_beside, part_of_folder, remove_parts
from ffmem.locations import cache_folder

FROM_WEIGHTS = ("gguf", "values", "digests")  # what is made again from a model, at a cost of time
NOTE = "entry.json"  # of an entry: what it is, and its files; written last
NO_NOTE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what is none raises
DIGEST = "digest.txt"


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache."""

    kind: str
    name: str
    about: str
    bytes: int


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
        if all((entry / name).stat().st_size == size for name, size in files.items()):
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
        remove_parts(entry.parent.glob(PARTS), PART_AGE)
        with part_of_folder(entry) as part:
            write(part)
            sizes = {
                file.relative_to(part).as_posix(): file.stat().st_size for file in _files(part)
            }
            (part / NOTE).write_text(json.dumps({"about": about, "files": sizes}, indent=1))
    return find(kind, address)


def file_identity(files: Iterable[Path]) -> str:
    """An address for files as they lie there now, made without reading them."""
    facts = []
    for file in sorted(one.resolve() for one in files):
        about = file.stat()
        facts.append((str(file), about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_size))
    return address_of(facts)


def digest_once(identity: str, about: str, compute: Callable[[], str]) -> str:
    """A digest of what has this identity: the one that was kept, or computed now and kept."""
    entry = find("digests", identity)
    if entry is not None:
        return (entry / DIGEST).read_text()
    digest = compute()
    keep("digests", identity, about, lambda part: (part / DIGEST).write_text(digest))
    return digest


def fetch_folder(folder: Path, stamp: bytes) -> Path:
    """A local copy of a folder at a URL, copied once per `stamp`."""
    remote: Any = folder
    name = hashlib.sha256(str(folder).encode() + stamp).hexdigest()[:16]
    here = cache_folder() / "stores" / name
    if here.exists():
        return here
    try:
        with part_of_folder(here) as part:
            for file in (path for path in remote.rglob("*") if path.is_file()):
                name = str(file.path)[len(str(remote.path).rstrip("/")) + 1 :]
                target = part / name
                if ".." in target.parts or not target.is_relative_to(part):
                    raise StoreError(f"{folder} names a file elsewhere, {shorten(name)!r}")
                target.parent.mkdir(parents=True, exist_ok=True)
                remote.fs.get_file(file.path, str(target))
    except OSError as error:
        if not here.exists():  # else another process was first
            raise StoreError(f"cannot fetch {folder} to {here}: {error}; try again") from error
    return here


def cache_entries() -> Iterator[CacheEntry]:
    """Every entry in the cache folder, including those of other parts of ffmem."""
    for kind in cache_kinds():
        for path in sorted((cache_folder() / kind).iterdir()):
            with suppress(OSError):  # removed by another process while this one looks
                yield CacheEntry(kind, path.name, _about(path), _size(path))


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


def _remove(entry: Path) -> None:
    """Take an entry away in one step, then delete it."""
    aside = part_beside(entry)
    entry.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _about(path: Path) -> str:
    with suppress(OSError, *NO_NOTE):
        return str(json.loads((path / NOTE).read_bytes())["about"])
    return "not finished" if path.match(PARTS) else ""


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in _files(path))


def _files(path: Path) -> list[Path]:
    """A file, or all files in a folder."""
    return [file for file in (path, *path.rglob("*")) if file.is_file()]
