"""Arrays that make a store quick to search: made once from its tables, then memory-mapped.

| array                        | what                                                              |
|------------------------------|-------------------------------------------------------------------|
| promoted, promoted_logits    | [memory, rank]: the tokens that a value promotes most             |
| suppressed, ..._logits       | the same for its other end                                        |
| probability, suppressed_...  | [memory]: of the end's first token                                |
| promoting_starts, _rows, ... | of every token the cells that promote it, see parquet_tables.py   |
| suppressing_...              | the same for cells that suppress it                               |
| word_*, sentence_*           | which triggers a word is in (trigger_words.py)                    |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.errors import StoreError
from ffmem.store.folder import ScanFolder, disk_trouble, write_whole
from ffmem.store.parquet_tables import (
    END_COLUMNS,
    End,
    all_pushes,
    by_token,
    end_column,
    read_column,
)
from ffmem.store.scan_store import ScanStore
from ffmem.store.trigger_words import word_arrays

FORMAT = 4  # raised when the arrays change
PUSHING: dict[str, End] = {"promoting": "promoted", "suppressing": "suppressed"}
Arrays = dict[str, NDArray[Any]]


def prepared(store: ScanStore, watch: Callable[[str], None] = lambda _name: None) -> Arrays:
    """The arrays of a store, made now if they are not there; `watch` hears what is being made.

    In a folder that cannot be written they are held in memory instead.
    """
    if not is_made(store):
        try:
            clear(store.folder)
            sizes = {name: save(store.folder, name, array) for name, array in made(store, watch)}
            note = json.dumps(mark(store) | {"arrays": sizes})
            write_whole(store.folder.prepared("made.json"), lambda part: part.write_text(note))
        except StoreError:
            return dict(made(store, watch))
    return mapped(store)


def mapped(store: ScanStore) -> Arrays:
    """The arrays that are in the folder, memory-mapped."""
    files = sorted(store.folder.prepared("").glob("*.npy"))
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


def is_made(store: ScanStore) -> bool:
    """Whether the folder has the arrays, whole and of this scan."""
    path = store.folder.prepared
    try:
        found = json.loads(path("made.json").read_text(encoding="utf-8"))
        sizes = found.pop("arrays")
        whole = all(path(f"{name}.npy").stat().st_size == sizes[name] for name in sizes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return bool(whole and found == mark(store))


def clear(folder: ScanFolder) -> None:
    """Remove what an earlier version, or an interrupted run, has left."""
    with disk_trouble(folder.prepared("")):
        for path in [folder.prepared("made.json"), *folder.prepared("").glob("*.npy")]:
            path.unlink(missing_ok=True)


def save(folder: ScanFolder, name: str, array: NDArray[Any]) -> int:
    """Write one array, ready to be memory-mapped; its bytes on disk."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.save(file, array)

    path = folder.prepared(f"{name}.npy")
    write_whole(path, write)
    return path.stat().st_size


def made(store: ScanStore, watch: Callable[[str], None]) -> Iterator[tuple[str, NDArray[Any]]]:
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
