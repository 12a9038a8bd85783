"""Arrays that make a store quick to search: made once from its tables, then memory-mapped.

| array                        | what                                                              |
|------------------------------|-------------------------------------------------------------------|
| promoted, promoted_logits    | [memory, rank]: the tokens that a value promotes most             |
| suppressed, ..._logits       | the same for its other end                                        |
| probability, suppressed_...  | [memory]: of the end's first token                                |
| promoting_starts, _rows, ... | of every token the cells that promote it, see parquet_tables.py   |
| suppressing_...              | the same for cells that suppress it                               |
| word_*, sentence_*           | which triggers a word is in (word_index.py)                       |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.errors import StoreError
from ffmem.store.digests import FileDigest, Files, first_wrong, seal, unseal, write_with_digest
from ffmem.store.folder import StudyFolder, write_errors, write_whole
from ffmem.store.parquet_tables import (
    END_COLUMNS,
    End,
    all_pushes,
    by_token,
    end_column,
    read_column,
)
from ffmem.store.range_checks import refuse_damage
from ffmem.store.scan_store import READ_AT_OPENING, ScanStore
from ffmem.store.word_index import word_arrays

FORMAT = 4  # raised when the arrays change
PUSHING: dict[str, End] = {"promoting": "promoted", "suppressing": "suppressed"}
Arrays = dict[str, NDArray[Any]]


def open_index(store: ScanStore, watch: Callable[[str], None] = lambda _name: None) -> Arrays:
    """The arrays of a store, made now if they are not there; `watch` hears what is being made.

    In a folder that cannot be written they are held in memory instead.
    """
    if not is_current_index(store):
        refuse_damage(store)  # else the index would look right ever after
        try:
            clear(store.folder)
            digests: Files = {}
            for name, array in index_arrays(store, watch):
                digests |= save(store.folder, name, array)
            files = {name: asdict(digest) for name, digest in digests.items()}
            note = json.dumps(seal({**mark(store), "files": files}))
            write_whole(store.folder.index_note, lambda part: part.write_text(note))
        except StoreError:
            return dict(index_arrays(store, watch))
    return load_arrays(store)


def load_arrays(store: ScanStore) -> Arrays:
    """The arrays that are in the folder, memory-mapped."""
    files = store.folder.matching(store.folder.index_array("*"))
    return {path.stem: np.load(path, mmap_mode="r").view(np.ndarray) for path in files}


def mark(store: ScanStore) -> dict[str, Any]:
    """What the arrays are made from, to know whether they still fit."""
    try:
        values = store.folder.table("values").stat()
    except OSError as error:
        raise StoreError(
            f"{store.folder.table('values')} cannot be read ({error.strerror}); scan again"
        ) from None
    return {
        "format": FORMAT,
        "scan": store.manifest.key.digest,
        "values": [values.st_size, values.st_mtime_ns],
    }


def is_current_index(store: ScanStore) -> bool:
    """Whether the folder has the arrays, whole and of this scan."""
    try:
        found = unseal(json.loads(store.folder.index_note.read_text(encoding="utf-8")))
        files = {name: FileDigest(**one) for name, one in found.pop("files").items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    root, most = store.folder.root, READ_AT_OPENING
    return found == mark(store) and first_wrong(root, files, most) is None


def clear(folder: StudyFolder) -> None:
    """Remove what an earlier version, or an interrupted run, has left."""
    with write_errors(folder.index):
        for path in [folder.index_note, *folder.matching(folder.index_array("*"))]:
            path.unlink(missing_ok=True)


def save(folder: StudyFolder, name: str, array: NDArray[Any]) -> Files:
    """One array, ready to be memory-mapped."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.save(file, array)

    return write_with_digest(folder, folder.index_array(name), write)


def index_arrays(
    store: ScanStore, watch: Callable[[str], None]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array by its name, one after the other, so that few are in memory at once."""
    watch("the ends of all values")
    for name in END_COLUMNS:
        yield name, end_column(store, name)
    words = len(read_column(store, "vocabulary", "id"))
    for name, end in PUSHING.items():
        watch(f"the memories {name} every token")
        starts, rows, ranks = by_token(all_pushes(store, end), words)
        yield f"{name}_starts", starts
        yield f"{name}_rows", rows
        yield f"{name}_ranks", ranks
    watch("the words of triggers")
    yield from word_arrays(store)
