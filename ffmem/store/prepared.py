"""Arrays that make a store quick to search: made once from its tables, then memory-mapped.

| array                        | what                                                              |
|------------------------------|-------------------------------------------------------------------|
| promoted, promoted_logits    | [memory, rank]: the tokens that a value promotes most             |
| suppressed, ..._logits       | the same for its other end                                        |
| probability, suppressed_...  | [memory]: of the end's first token                                |
| promoted_places, ..._starts  | where each token stands in `promoted`: best rank, then surest     |
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
from ffmem.store.folder import ScanFolder, write_whole
from ffmem.store.scan_store import ScanStore
from ffmem.store.trigger_words import word_arrays

FORMAT = 1  # raised when the arrays change
ENDS = ("promoted", "suppressed")
Arrays = dict[str, NDArray[Any]]


def prepared(store: ScanStore, watch: Callable[[str], None] = lambda _name: None) -> Arrays:
    """The arrays of a store, made now if they are not there; `watch` hears what is being made.

    In a folder that cannot be written they are held in memory instead.
    """
    if not is_made(store):
        try:
            for name, array in made(store, watch):
                save(store.folder, name, array)
            note = json.dumps(mark(store))
            write_whole(store.folder.prepared("made.json"), lambda part: part.write_text(note))
        except StoreError:
            return dict(made(store, watch))
    folder = store.folder.prepared("made.json").parent
    return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}


def mark(store: ScanStore) -> dict[str, Any]:
    """What the arrays are made from, to know whether they still fit."""
    values = store.folder.table("values").stat()
    return {
        "format": FORMAT,
        "scan": store.manifest.key.digest,
        "values": [values.st_size, values.st_mtime_ns],
    }


def is_made(store: ScanStore) -> bool:
    """Whether the folder has the arrays, whole and of this scan."""
    try:
        found = json.loads(store.folder.prepared("made.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == mark(store))


def save(folder: ScanFolder, name: str, array: NDArray[Any]) -> None:
    """One array, ready to be memory-mapped."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.save(file, array)

    write_whole(folder.prepared(f"{name}.npy"), write)


def made(store: ScanStore, watch: Callable[[str], None]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array by its name, one after the other, so that few are in memory at once."""
    words = len(read_column(store, "vocabulary", "id"))
    for end, sure in zip(ENDS, ("probability", "suppressed_probability"), strict=True):
        watch(f"tokens that values {'promote' if end == 'promoted' else 'suppress'}")
        tokens = read_column(store, "values", end).astype(np.int32)
        certain = read_column(store, "values", sure).astype(np.float32)
        yield end, tokens
        yield sure, certain
        yield f"{end}_logits", read_column(store, "values", f"{end}_logits").astype(np.float32)
        places, starts = by_token(tokens, certain, words)
        yield f"{end}_places", places
        yield f"{end}_starts", starts
    watch("words of triggers")
    yield from word_arrays(store)


def read_column(store: ScanStore, table: str, name: str) -> NDArray[Any]:
    """One column of a table; a column of equal lists is an array of two axes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.folder.table(table)
    try:
        column = pq.read_table(path, columns=[name]).column(0).combine_chunks()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} cannot be read ({reason}); scan again") from None
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def by_token(
    tokens: NDArray[np.int32], certain: NDArray[np.float32], words: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Flat places of `tokens` [memory, rank] in order of token, rank, certainty; and each start."""
    memories, ranks = tokens.shape
    surest = np.argsort(-certain, kind="stable").astype(np.int32)
    by_rank = (surest[None, :] * ranks + np.arange(ranks, dtype=np.int32)[:, None]).reshape(-1)
    order = np.argsort(tokens.reshape(-1)[by_rank], kind="stable")
    counts = np.bincount(tokens.reshape(-1), minlength=words)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return by_rank[order].astype(np.int32), starts
