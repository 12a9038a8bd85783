"""Arrays that make a store quick to search: made once from its tables, then memory-mapped.

| array                        | what                                                              |
|------------------------------|-------------------------------------------------------------------|
| promoted, promoted_logits    | [memory, rank]: the tokens that a value promotes most             |
| suppressed, ..._logits       | the same for its other end                                        |
| probability, suppressed_...  | [memory]: of the end's first token                                |
| promoting_starts, _rows, ... | of every token the cells that promote it: best rank, then surest  |
| suppressing_...              | the same for cells that suppress it                               |
| word_*, sentence_*           | which triggers a word is in (trigger_words.py)                    |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address, Sign
from ffmem.errors import StoreError
from ffmem.store.digests import FileDigest, Files, first_wrong, seal, unseal, write_digested
from ffmem.store.folder import ScanFolder, disk_trouble, write_whole
from ffmem.store.ranges import first_line, refuse_damage
from ffmem.store.scan_store import READ_AT_OPENING, ScanStore
from ffmem.store.trigger_words import word_arrays

FORMAT = 3  # raised when the arrays change
ENDS = ("promoted", "suppressed")
Arrays = dict[str, NDArray[Any]]


def prepared(store: ScanStore, watch: Callable[[str], None] = lambda _name: None) -> Arrays:
    """The arrays of a store, made now if they are not there; `watch` hears what is being made.

    In a folder that cannot be written they are held in memory instead.
    """
    if not is_made(store):
        refuse_damage(store)  # else the index would look right ever after
        try:
            clear(store.folder)
            digests: Files = {}
            for name, array in made(store, watch):
                digests |= save(store.folder, name, array)
            files = {name: asdict(digest) for name, digest in digests.items()}
            note = json.dumps(seal({**mark(store), "files": files}))
            write_whole(store.folder.prepared("made.json"), lambda part: part.write_text(note))
        except StoreError:
            return dict(made(store, watch))
    folder = store.folder.prepared("made.json").parent
    paths = sorted(folder.glob("*.npy"))
    return {path.stem: np.load(path, mmap_mode="r").view(np.ndarray) for path in paths}


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
        found = unseal(json.loads(store.folder.prepared("made.json").read_text(encoding="utf-8")))
        files = {name: FileDigest(**one) for name, one in found.pop("files").items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    root, most = store.folder.root, READ_AT_OPENING
    return found == mark(store) and first_wrong(root, files, most) is None


def clear(folder: ScanFolder) -> None:
    """Remove what an earlier version, or an interrupted run, has left."""
    with disk_trouble(folder.prepared("")):
        for path in [folder.prepared("made.json"), *folder.prepared("").glob("*.npy")]:
            path.unlink(missing_ok=True)


def save(folder: ScanFolder, name: str, array: NDArray[Any]) -> Files:
    """One array, ready to be memory-mapped."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.save(file, array)

    return write_digested(folder, folder.prepared(f"{name}.npy"), write)


def made(store: ScanStore, watch: Callable[[str], None]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array by its name, one after the other, so that few are in memory at once."""
    watch("the ends of all values")
    ends = {}
    for end, sure in zip(ENDS, ("probability", "suppressed_probability"), strict=True):
        tokens = read_column(store, "values", end).astype(np.int32)
        certain = read_column(store, "values", sure).astype(np.float32)
        ends[end] = (tokens, certain)
        yield end, tokens
        yield sure, certain
        yield f"{end}_logits", read_column(store, "values", f"{end}_logits").astype(np.float32)
    words = len(read_column(store, "vocabulary", "id"))
    for name, order in (("promoting", ENDS), ("suppressing", ENDS[::-1])):
        watch(f"the memories {name} every token")
        starts, rows, ranks = by_token(store, [ends[end] for end in order], words)
        yield f"{name}_starts", starts
        yield f"{name}_rows", rows
        yield f"{name}_ranks", ranks
    watch("the words of triggers")
    yield from word_arrays(store)


def read_column(store: ScanStore, table: str, name: str) -> NDArray[Any]:
    """One column of a table; a column of equal lists is an array of two axes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.folder.table(table)
    try:
        column = pq.read_table(path, columns=[name]).column(0).combine_chunks()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({first_line(error)}); {store.folder.remedy}"
        ) from None
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def by_token(
    store: ScanStore, ends: list[tuple[NDArray[np.int32], NDArray[np.float32]]], words: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
    """The cells of every token by rank and certainty: where each token starts, rows, ranks.

    `ends` is what + cells push, then what - cells push; other models have + cells only.
    """
    signed = store.manifest.signed
    tokens = np.concatenate([part for part, _ in ends[: 2 if signed else 1]])
    certain = np.concatenate([part for _, part in ends[: 2 if signed else 1]])
    rows = np.concatenate([cell_rows(store, sign) for sign in (("+", "-") if signed else ("",))])
    surest = np.argsort(-certain, kind="stable")
    in_rank_order = tokens[surest].T.reshape(-1)  # all of rank 0, surest first, then rank 1 ...
    order = np.argsort(in_rank_order, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(in_rank_order, minlength=words))])
    ranks, places = np.divmod(order, len(surest))
    return starts.astype(np.int64), rows[surest[places]].astype(np.int32), ranks.astype(np.uint8)


def cell_rows(store: ScanStore, sign: Sign) -> NDArray[np.int64]:
    """The rows of one sign's cells, memory by memory over all layers."""
    return np.concatenate(
        [
            store.row(Address(number, 0, sign)) + np.arange(memories)
            for number, memories in store.memories.items()
        ]
    )
