"""The Parquet tables of a store: a column, one row, and which cells have a token among their ends.

A value has two ends: the tokens it promotes most and those it suppresses most. Cells that have a
token at an end stand in one order everywhere: its best rank first, then the highest probability
of the end's first token, then the later layer, the earlier memory, and + before -.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Sign
from ffmem.errors import StoreError
from ffmem.locations import first_line, for_arrow
from ffmem.store.folder import StudyFolder, check_unpacked_size
from ffmem.store.scan_store import ScanStore

NUMBER_BYTES = 8  # at most, of a value of a table in memory
TEXT = "BYTE_ARRAY"  # how Parquet names its type
End = Literal["promoted", "suppressed"]
OTHER: dict[End, End] = {"promoted": "suppressed", "suppressed": "promoted"}
PROBABILITY_COLUMN: dict[End, str] = {
    "promoted": "probability",
    "suppressed": "suppressed_probability",
}
END_COLUMNS: dict[str, type[np.generic]] = {
    "promoted": np.int32,
    "promoted_logits": np.float32,
    "probability": np.float32,
    "suppressed": np.int32,
    "suppressed_logits": np.float32,
    "suppressed_probability": np.float32,
}


@contextmanager
def damage(store: ScanStore, path: Path) -> Iterator[None]:
    """Turn what a broken table raises into one sentence."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, pa.ArrowException, LookupError) as error:
        remedy = store.folder.remedy_for(path, error)
        raise StoreError(f"{path} cannot be read ({first_line(error)}); {remedy}") from None


@contextmanager
def open_table(path: Path) -> Iterator[Any]:
    """A table to read, in which equal texts take room once."""
    import pyarrow.parquet as pq  # not pq.read_table: it imports pandas, which takes half a second

    with pq.ParquetFile(for_arrow(path)) as file:
        columns = (file.schema.column(n) for n in range(len(file.schema)))
        texts = [column.path for column in columns if column.physical_type == TEXT]
        if not texts:
            yield file
            return
        known = file.metadata
    with pq.ParquetFile(for_arrow(path), metadata=known, read_dictionary=texts) as file:
        yield file


def read_column(store: ScanStore, table: str, name: str) -> NDArray[Any]:
    """One column of a table; a column of equal lists is an array of two axes."""
    path = store.folder.table(table)
    with damage(store, path), open_table(path) as file:
        check_groups(store.folder, path, file, range(file.num_row_groups))
        return as_array(file.read(columns=[name]).column(0))


def as_array(column: Any) -> NDArray[Any]:
    """A column of pyarrow as an array."""
    import pyarrow as pa

    whole = column.unify_dictionaries().combine_chunks()
    if pa.types.is_list(whole.type):
        first, last = whole.offsets[0].as_py(), whole.offsets[-1].as_py()
        inner = whole.values.slice(first, last - first)  # `flatten` imports pyarrow.compute: 0.1 s
        return numbers_of(inner).reshape(len(whole), -1)
    if pa.types.is_dictionary(whole.type):  # texts; equal ones are one object
        texts = np.array(whole.dictionary.to_pylist(), dtype=object)
        return texts[numbers_of(whole.indices)]
    return numbers_of(whole)


def numbers_of(array: Any) -> NDArray[Any]:
    """An array of pyarrow without a copy; its own `to_numpy` imports pandas."""
    if not len(array):
        return np.zeros(0, dtype=array.type.to_pandas_dtype())
    return np.from_dlpack(array)


def _check_rankings(store: ScanStore) -> None:
    """Say which command ranks the values of a scan that lacks that."""
    if not store.has_rankings:
        raise StoreError(
            f"the values of {store.folder.root} are not ranked; run the command that scanned it "
            "again, without --no-values (it reads no text again)"
        )


def end_column(store: ScanStore, name: str) -> NDArray[Any]:
    """One column of the values' ends, a row for every memory."""
    _check_rankings(store)
    return read_column(store, "values", name).astype(END_COLUMNS[name], copy=False)


def value_row(store: ScanStore, names: Sequence[str], memory: int) -> list[NDArray[Any]]:
    """Some columns of the ends of one value; only the part of the table around it is read."""
    path = store.folder.table("values")
    with damage(store, path), open_table(path) as file:
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        before = np.cumsum([0, *sizes])
        group = int(np.searchsorted(before, memory, side="right")) - 1
        check_groups(store.folder, path, file, [group])
        part = file.read_row_group(group, columns=list(names)).slice(memory - before[group], 1)
        return [as_array(part[name])[0] for name in names]


def rows_where(store: ScanStore, table: str, name: str, value: int) -> dict[str, NDArray[Any]]:
    """The rows of a table that have a value in a column; groups of rows without it are not read."""
    path = store.folder.table(table)
    with damage(store, path), open_table(path) as file:
        groups = [n for n in range(file.num_row_groups) if _may_hold(file, n, name, value)]
        check_groups(store.folder, path, file, groups)
        rows = file.read_row_groups(groups)
        which = as_array(rows[name]) == value
        return {column: as_array(rows[column])[which] for column in rows.column_names}


def check_groups(folder: StudyFolder, path: Path, file: Any, groups: Iterable[int]) -> None:
    """Refuse a table of which some groups of rows say that they unpack to too much."""
    parts = (file.metadata.row_group(group) for group in groups)
    columns = [part.column(n) for part in parts for n in range(part.num_columns)]
    numbers = sum(NUMBER_BYTES * column.num_values for column in columns)
    texts = sum(one.total_uncompressed_size for one in columns if one.physical_type == TEXT)
    check_unpacked_size(folder, path, numbers + texts)


def _may_hold(file: Any, group: int, name: str, value: int) -> bool:
    """Whether a group of rows may have a value in a column, as far as the file says."""
    column = file.schema_arrow.get_field_index(name)
    known = file.metadata.row_group(group).column(column).statistics
    return known is None or not known.has_min_max or known.min <= value <= known.max


@dataclass(frozen=True, eq=False)
class Pushes:
    """The strongest tokens of some cells by rank, and the sort keys of the cells."""

    rows: NDArray[np.int64]
    layers: NDArray[np.int64]
    memories: NDArray[np.int64]
    top_probability: NDArray[np.float32]
    tokens: NDArray[np.int32]

    def only(self, which: NDArray[Any]) -> Pushes:
        """Some of the cells, in the order given."""
        return Pushes(*(getattr(self, each.name)[which] for each in fields(self)))

    def with_token(self, token: int) -> Pushes:
        """The cells that have a token."""
        return self.only((self.tokens == token).any(axis=1))

    def in_order(self) -> Pushes:
        """Highest probability first; of equals the later layer, the earlier memory, + before -."""
        return self.only(
            np.lexsort((self.rows, self.memories, -self.layers, -self.top_probability))
        )


def all_pushes(store: ScanStore, end: End) -> Pushes:
    """The tokens that every cell promotes or suppresses; for a - cell the ends are swapped."""
    signs: dict[Sign, End] = {
        sign: OTHER[end] if sign == "-" else end for sign in store.cells.signs
    }
    sizes = store.memories.values()
    layers = np.repeat(np.array(list(store.memories)), list(sizes))
    memories = np.concatenate([np.arange(size) for size in sizes])
    return Pushes(
        rows=np.concatenate([store.cells.rows_with(sign) for sign in signs]),
        layers=np.tile(layers, len(signs)),
        memories=np.tile(memories, len(signs)),
        top_probability=np.concatenate(
            [end_column(store, PROBABILITY_COLUMN[stored]) for stored in signs.values()]
        ),
        tokens=np.concatenate([end_column(store, stored) for stored in signs.values()]),
    )


def by_token(
    pushes: Pushes, words: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
    """The cells of every token, in order: where each token starts, rows, ranks."""
    ordered = pushes.in_order()
    in_rank_order = ordered.tokens.T.reshape(-1)  # all of rank 0 by probability, then rank 1 ...
    order = np.argsort(in_rank_order, kind="stable")
    starts = np.concatenate(
        [[0], np.cumsum(np.bincount(in_rank_order[in_rank_order < words], minlength=words))]
    )
    ranks, places = np.divmod(order, max(len(ordered.rows), 1))
    return starts.astype(np.int64), ordered.rows[places].astype(np.int32), ranks.astype(np.uint8)
