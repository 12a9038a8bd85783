"""Per-memory results of analyses as columns to sort and filter by: weights, agreement.

A condition is a column, a comparison and a value: `value_norm>2`, `class=weakening`, `fires<10`.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ffmem.errors import ConditionError, FfmemError, StoreError, shorten
from ffmem.files.whole_files import write_whole
from ffmem.locations import first_line, for_arrow
from ffmem.store.folder import StudyFolder, check_unpacked_size
from ffmem.store.parquet_tables import as_array, check_groups, damage, open_table
from ffmem.store.scan_store import UNREADABLE, ScanStore

VALUE = r"[A-Za-z0-9_.+-]+(?: [A-Za-z0-9_.+-]+)*"
CONDITION = f" *([a-z_]+) *(>=|<=|!=|=|>|<) *({VALUE}) *"
CONDITIONS_PATTERN = f"^ *({CONDITION}(,{CONDITION})*)?$"  # what `parse_conditions` reads
# What numpy raises at a zip file that is not as it was written.
BROKEN_ARRAYS = (
    *(*UNREADABLE, LookupError, RuntimeError, AttributeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)
COMPARISONS = {
    ">=": np.greater_equal,
    "<=": np.less_equal,
    "!=": np.not_equal,
    "=": np.equal,
    ">": np.greater,
    "<": np.less,
}
WORDS = ("class", "role")  # columns of text
NumberColumn = Literal[
    "key_norm",
    "gate_norm",
    "value_norm",
    "key_bias",
    "gate_bias",
    "key_value",
    "gate_value",
    "gate_key",
    "logit_mean",
    "logit_variance",
    "logit_skew",
    "logit_kurtosis",
    "cosine_variance",
    "weak_share",
    "frequency",
    "entropy_score",
    "twin_cosine",
]
NUMBERS: tuple[str, ...] = get_args(NumberColumn)


def write_columns(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write a table as Parquet, or as CSV if the file's name ends in .csv; whole or not at all."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table(dict(columns))
    if path.suffix == ".csv":
        write_whole(path, lambda part: pyarrow.csv.write_csv(table, for_arrow(part)))
        return
    write_whole(
        path,
        lambda part: pq.write_table(
            table, for_arrow(part), row_group_size=65536, compression="zstd"
        ),
    )


def _weight_names(store: ScanStore) -> tuple[str, ...]:
    """The columns that a study has; empty if the weights were not analysed."""
    import pyarrow.parquet as pq

    path = store.folder.weights
    if not path.exists():
        return ()
    with damage(store, path):
        return tuple(pq.read_schema(for_arrow(path)).names)


def cell_column(store: ScanStore, name: str) -> NDArray[Any]:
    """One column with a row for each cell; both signs of a gated memory share its weights."""
    path, cells = store.folder.weights, store.cells
    known = _weight_names(store)
    if not known:
        raise StoreError(
            f"{store.folder.root} has no numbers of the weights, so no {name}; make them with "
            f"`ffmem analyse {store.folder.root} --only weights`"
        )
    if name not in known:
        raise StoreError(f"the model's memories have no {name}; choose among {', '.join(known)}")
    with damage(store, path), open_table(path) as file:
        check_groups(store.folder, path, file, range(file.num_row_groups))
        column = as_array(file.read(columns=[name]).column(0))
    if len(column) * len(cells.signs) != cells.count:
        raise StoreError(f"{path} is of another scan; {store.folder.again(path.stem)}")
    memories, _ = cells.memories_of(np.arange(cells.count))
    return column[memories]


def weight_row(store: ScanStore, memory: int) -> dict[str, Any]:
    """One memory's weights by column; empty if not analysed, or for another scan."""
    path = store.folder.weights
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return {}
    with damage(store, path):
        table = _weights(path, changed)
    if len(table.numbers) * len(store.cells.signs) != store.cells.count:
        return {}
    texts = {name: column[memory] for name, column in table.texts.items() if column[memory]}
    numbers = zip(table.names, table.numbers[memory].tolist(), strict=True)
    return texts | {name: value for name, value in numbers if value == value}  # NaN is left out


@dataclass(frozen=True, eq=False)
class WeightTable:
    """The whole table: columns of text, and of numbers as [memory, column]."""

    texts: dict[str, NDArray[Any]]
    names: tuple[str, ...]
    numbers: NDArray[Any]


@lru_cache(maxsize=2)
def _weights(path: Path, _changed: int) -> WeightTable:
    """The table, read once, because a page must not wait for it."""
    with open_table(path) as file:
        check_groups(StudyFolder(path.parent.parent), path, file, range(file.num_row_groups))
        table = file.read()
    names = tuple(name for name in NUMBERS if name in table.column_names)
    numbers = [np.zeros((len(table), 0), np.float32)]
    numbers += [as_array(table.column(name)) for name in names]
    texts = {name: as_array(table.column(name)) for name in WORDS if name in table.column_names}
    return WeightTable(texts, names, np.column_stack(numbers))


def read_numbers(folder: StudyFolder, name: str, *arrays: str) -> list[NDArray[Any]] | None:
    """Some of the arrays that belong to a result; None if it has none.

    Refuses a damaged file, which its own checksums show.
    """
    path = folder.numbers(name)
    try:
        with path.open("rb") as file, np.load(file) as found:
            check_unpacked_size(folder, path, sum(one.file_size for one in found.zip.infolist()))
            return [found[array] for array in arrays]
    except FileNotFoundError:
        return None
    except BROKEN_ARRAYS as error:
        raise StoreError(
            f"{path} cannot be read ({first_line(error)}); {folder.remedy_for(path, error)}"
        ) from None


def next_token_ranks(folder: StudyFolder) -> NDArray[Any] | None:
    """[cell, trigger]: the rank of the token behind each trigger under the value; below 0: none.

    The result of the values analysis; None if there is none.
    """
    found = read_numbers(folder, "values", "ranks")
    return None if found is None else found[0]


def agreement_column(store: ScanStore) -> NDArray[np.float32]:
    """The share of each cell's triggers whose next token is the value's top token."""
    ranks = next_token_ranks(store.folder)
    if ranks is None or len(ranks) != store.cells.count:
        raise StoreError(
            f"{store.folder.root} has no agreement of keys and values; make it with "
            f"`ffmem analyse {store.folder.root} --only values`"
        )
    return _agreeing_share((ranks == 0).sum(axis=1), (ranks >= 0).sum(axis=1))


def _agreeing_share(agreeing: NDArray[Any], triggers: NDArray[Any]) -> NDArray[np.float32]:
    """The share of triggers that agree; 0 for a cell without any."""
    return (agreeing / np.maximum(triggers, 1)).astype(np.float32)


@dataclass(frozen=True)
class Condition:
    """A condition on one column."""

    column: str
    comparison: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read `value_norm>2`."""
        match = re.fullmatch(CONDITION, text)
        if match is None:
            raise FfmemError(
                f"{shorten(text)!r} is not a condition; write a column, a comparison and a value, "
                "as in value_norm>2 or class=weakening"
            )
        return cls(match[1], match[2], match[3])

    def holds(self, column: NDArray[Any]) -> NDArray[np.bool_]:
        """True for the rows that satisfy the condition."""
        wanted: Any = self.value
        if column.dtype.kind in "OU":
            if self.comparison not in ("=", "!="):
                raise ConditionError(f"{self.column} is text; write {self.column}={self.value}")
            if wanted not in (known := sorted(set(column.tolist()))):
                there = ", ".join(filter(None, known)) or "none, so leave the condition out"
                raise ConditionError(
                    f"no memory has the {self.column} {shorten(wanted)!r}; there are {there}"
                )
        else:
            try:
                wanted = float(wanted)
            except ValueError:
                wanted = np.nan
            if np.isnan(wanted):
                raise ConditionError(
                    f"{shorten(self.value)!r} in a condition on {self.column} is not a number; "
                    f"write it as in {self.column}>2"
                )
        return np.asarray(COMPARISONS[self.comparison](column, wanted))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Read `class=weakening, value_norm>2`; nothing means no condition."""
    return tuple(map(Condition.parse, text.split(","))) if text.strip(" ") else ()


def all_hold(
    conditions: Sequence[Condition], columns: Mapping[str, NDArray[Any]], rows: int
) -> NDArray[np.bool_]:
    """The rows for which every condition holds."""
    found = np.ones(rows, dtype=bool)
    for condition in conditions:
        found &= condition.holds(columns[condition.column])
    return found


@dataclass(frozen=True)
class ValueAgreement:
    """Whether the value's top token is what follows the triggers."""

    strongest: bool | None  # of the strongest trigger; None where nothing follows it
    triggers: int  # triggers that are followed by a token
    agreeing: int  # those of them followed by the value's top token
    median_rank: float | None  # of the tokens that follow, under the value; 0 is the top


@dataclass(frozen=True, eq=False)
class AgreementTable:
    """The same for every cell, as arrays."""

    strongest: NDArray[np.int8]  # -1 where nothing follows
    triggers: NDArray[np.int32]
    agreeing: NDArray[np.int32]
    median_rank: NDArray[np.float32]

    @cached_property
    def share(self) -> NDArray[np.float32]:
        """The share of triggers whose next token is the value's top token."""
        return _agreeing_share(self.agreeing, self.triggers)

    def of(self, row: int) -> ValueAgreement:
        """One cell."""
        strongest, median = int(self.strongest[row]), float(self.median_rank[row])
        return ValueAgreement(
            strongest=None if strongest < 0 else bool(strongest),
            triggers=int(self.triggers[row]),
            agreeing=int(self.agreeing[row]),
            median_rank=None if np.isnan(median) else median,
        )


def agreement_table(folder: StudyFolder, cells: int) -> AgreementTable | None:
    """The result of `ffmem analyse --only values`, or None; reloaded only when it has changed."""
    path = folder.numbers("values")
    try:
        found = _read_agreement(folder, path.stat().st_mtime_ns)
    except OSError:
        return None
    return found if found is not None and len(found.triggers) == cells else None


@lru_cache(maxsize=4)
def _read_agreement(folder: StudyFolder, _changed: int) -> AgreementTable | None:
    ranks = next_token_ranks(folder)
    if ranks is None:
        return None
    known = ranks >= 0
    count = known.sum(axis=1).astype(np.int32)
    ordered = np.sort(np.where(known, ranks, np.iinfo(ranks.dtype).max), axis=1)
    rows = np.arange(len(ranks))
    low, high = (
        ordered[rows, np.clip(middle, 0, ranks.shape[1] - 1)]
        for middle in ((count - 1) // 2, count // 2)
    )
    median = np.where(count > 0, (low + np.minimum(high, np.int64(2**40))) / 2, np.nan)
    return AgreementTable(
        strongest=np.where(known[:, 0], ranks[:, 0] == 0, -1).astype(np.int8),
        triggers=count,
        agreeing=(ranks == 0).sum(axis=1).astype(np.int32),
        median_rank=median.astype(np.float32),
    )
