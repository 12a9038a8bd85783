"""Length and SHA-256 of a scan's files as they were written, to notice damage later.

| files            | location of their digests            |
|------------------|--------------------------------------|
| the scan         | `manifest.json`, under a seal        |
| the search index | `prepared/made.json`, under a seal   |

Results, figures and reports have none: they are made again from the scan.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ffmem.errors import StoreError, advice, reason
from ffmem.files.whole_files import write_whole
from ffmem.records import restore
from ffmem.store.folder import StudyFolder

SEAL = "seal"
CHANGED = "has changed since it was written"
CHUNK = 1 << 20  # bytes read at a time
ByteWatch = Callable[[int], None]  # hears how many bytes were read


@dataclass(frozen=True)
class FileDigest:
    """Length and SHA-256 of a file."""

    bytes: int
    sha256: str


Files = dict[str, FileDigest]  # by the path below the folder
FILE_NAME = re.compile(r"((arrays|prepared)/)?[\w-]+\.(npy|parquet)", re.ASCII)


def files_of(data: Any) -> Files:
    """The digests that a manifest or an index lists; a ValueError for names of other files."""
    found = restore(Files, data)
    for name, digest in found.items():
        if not FILE_NAME.fullmatch(name) or digest.bytes < 0:
            raise ValueError(f"{name} is no file of a scan")
    return cast(Files, found)


def file_digest(path: Path, watch: ByteWatch = lambda _bytes: None) -> FileDigest:
    """The digest of a file as it is now; `watch` is called for every piece."""
    digest, size, piece = hashlib.sha256(), 0, memoryview(bytearray(CHUNK))
    with path.open("rb") as file:
        while read := file.readinto(piece):
            digest.update(piece[:read])
            size += read
            watch(read)
    return FileDigest(size, digest.hexdigest())


def first_wrong(root: Path, files: Files, most: int) -> tuple[str, str] | None:
    """The first file that has changed since it was written, and how; or None.

    Checks the length of every file, and reads the smallest ones, `most` bytes in all.
    """
    read = 0
    for name, known in sorted(files.items(), key=lambda one: one[1].bytes):
        read += known.bytes
        wrong = what_is_wrong(root / name, known, whole=read <= most)
        if wrong is not None:
            return name, wrong
    return None


def what_is_wrong(
    path: Path,
    known: FileDigest,
    whole: bool = True,
    watch: ByteWatch = lambda _bytes: None,
) -> str | None:
    """How a file differs from its digest, or None; only its length if not `whole`."""
    try:
        size = path.stat().st_size
        if size != known.bytes:
            return f"has {size:,} bytes instead of {known.bytes:,}"
        if whole and file_digest(path, watch) != known:
            return CHANGED
    except FileNotFoundError:
        return "is missing"
    except PermissionError as error:  # closed, which is not damaged
        raise StoreError(f"{path} cannot be read ({reason(error)}); {advice(error)}") from None
    except OSError as error:
        return f"cannot be read ({reason(error)})"
    return None


def write_with_digest(folder: StudyFolder, path: Path, write: Callable[[Path], object]) -> Files:
    """Write a file of a scan, whole or not at all; returns its name and digest."""
    found: list[FileDigest] = []

    def write_and_read(part: Path) -> None:
        write(part)
        found.append(file_digest(part))

    write_whole(path, write_and_read)
    return {folder.name(path): found[0]}


def seal(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same data with a digest of itself."""
    return {**data, SEAL: _digest_of(data)}


def unseal(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data under a seal; a ValueError if it is not what was sealed."""
    inside = {name: value for name, value in data.items() if name != SEAL}
    if data.get(SEAL) != _digest_of(inside):
        raise ValueError("the seal does not fit")
    return inside


def _digest_of(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
