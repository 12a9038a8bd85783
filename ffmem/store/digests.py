"""Length and SHA-256 of every file as it was written, to notice damage later.

| files                              | location of their digests                                   |
|------------------------------------|-------------------------------------------------------------|
| the scan                           | `manifest.json`, under a seal                               |
| the search index                   | `prepared/made.json`, under a seal                          |
| results, figures, reports          | a line each in the `digests.jsonl` beside them              |

A line is added before its file is put in place, and a file may match any of its lines: a kill, or
two processes that write the same file, never make an undamaged file look damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ffmem.errors import StoreError, advice, reason
from ffmem.locations import is_remote
from ffmem.store.folder import StudyFolder, notes_path, write_errors, write_whole

SEAL = "seal"
CHUNK = 1 << 20  # bytes read at a time
ByteWatch = Callable[[int], None]  # hears how many bytes were read


@dataclass(frozen=True)
class FileDigest:
    """Length and SHA-256 of a file."""

    bytes: int
    sha256: str


Files = dict[str, FileDigest]  # by the path below the folder


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
        wrong = what_is_wrong(root / name, [known], whole=read <= most)
        if wrong is not None:
            return name, wrong
    return None


def what_is_wrong(
    path: Path,
    known: Sequence[FileDigest],
    whole: bool = True,
    watch: ByteWatch = lambda _bytes: None,
) -> str | None:
    """How a file differs from all its digests, or None; only its length if not `whole`."""
    try:
        size = path.stat().st_size
        if size not in [one.bytes for one in known]:
            return f"has {size:,} bytes instead of {known[-1].bytes:,}"
        if whole and file_digest(path, watch) not in known:
            return "has changed since it was written"
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


def write_and_note(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file that comes after the scan, whole or not at all, and note its digest.

    At a URL, where nothing can be appended to a file, there is no note.
    """

    def write_and_note(part: Path) -> None:
        write(part)
        note(path, file_digest(part))

    write_whole(path, write if is_remote(path) else write_and_note)


def note(path: Path, digest: FileDigest) -> None:
    """Add a line to the notes beside a file, unless they have it."""
    notes = notes_path(path)
    before = notes.read_bytes() if notes.exists() else b""
    line = json.dumps(seal({"file": path.name, **asdict(digest)})).encode()
    if line in before.splitlines():
        return
    cut = before and not before.endswith(b"\n")  # a line that lost its end must not take this one
    with write_errors(notes), notes.open("ab") as file:
        file.write((b"\n" if cut else b"") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_notes(notes: Path) -> tuple[dict[str, list[FileDigest]], int]:
    """The noted digests of every file, the latest last, and the number of damaged lines."""
    found: dict[str, list[FileDigest]] = {}
    damaged = 0
    for line in notes.read_bytes().splitlines() if notes.exists() else ():
        try:
            data = unseal(json.loads(line))
            found.setdefault(data.pop("file"), []).append(FileDigest(**data))
        except (ValueError, KeyError, TypeError, AttributeError):
            damaged += 1
    return found, damaged


def check_note(path: Path) -> None:
    """Refuse a file that has changed since it was written; one without a note passes."""
    known = read_notes(notes_path(path))[0].get(path.name)
    if known and file_digest(path) not in known:
        raise StoreError(
            f"{path} has changed since it was written; delete it and run again the command "
            "that made it"
        )


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
