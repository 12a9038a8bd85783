"""The slots of cells: each holds a trigger, or a sampled prefix, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.store.scan_writer import NO_SENTENCE

if TYPE_CHECKING:
    from ffmem.store.scan_store import ScanStore

SlotKind = Literal["trigger", "sample"]
TRIGGERS_SHOWN = 25  # of a cell's triggers, to people and to annotators, as in the paper


@dataclass(frozen=True, eq=False)
class Slots:
    """The filled slots of some cells, cell by cell, strongest first; arrays are read on first use.

    `mask` [cell, slot] is true for filled slots. The other arrays have one entry per filled slot,
    row by row. `top` leaves out all but a cell's first slots.
    """

    store: ScanStore
    rows: slice | Sequence[int] | NDArray[Any]
    kind: SlotKind = "trigger"
    top: int | None = None

    def _array(self, name: str) -> NDArray[Any]:
        return np.asarray(self.store.array(f"{self.kind}_{name}")[self.rows, : self.top])

    def _entries(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(-1) if self._is_full else array[self.mask]

    @cached_property
    def _numbers(self) -> NDArray[np.uint32]:
        return self._array("sentences")

    @cached_property
    def _is_full(self) -> bool:
        return bool(self.mask.all())

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """True for filled slots, [cell, slot]."""
        return self._numbers != NO_SENTENCE

    def __len__(self) -> int:
        """Number of filled slots."""
        return int(np.count_nonzero(self.mask))

    @cached_property
    def cell(self) -> NDArray[np.int64]:
        """The cell of each filled slot, by its place among the rows."""
        return np.nonzero(self.mask)[0]

    @cached_property
    def number(self) -> NDArray[np.uint32]:
        """The number of the sentence in the corpus."""
        return self._entries(self._numbers)

    @cached_property
    def sentence(self) -> NDArray[np.int64]:
        """The row of the sentence among the kept ones; a KeyError if one is not there."""
        return self.store.sentences.rows(self.number)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """Number of tokens of the sentence in the prefix."""
        return self._entries(self._array("positions")).astype(np.int64)

    @cached_property
    def coefficient(self) -> NDArray[np.float32]:
        """The cell's coefficient there."""
        return self._entries(self._array("coefficients"))

    def distinct_sentences(self) -> NDArray[np.int64]:
        """The rows of all sentences in the slots, without repeats, in order."""
        return self.store.sentences.rows(np.unique(self.number))


@dataclass(frozen=True)
class Trigger:
    """A prefix that fires a memory: `before` and `last` were read, and `next` followed.

    In a mixture of experts, `weight` is the router's weight for the memory's expert at this place.
    """

    coefficient: float
    sentence: int
    position: int
    before: str
    last: str
    next: str
    rest: str
    weight: float | None = None

    @property
    def prefix(self) -> str:
        """What was read."""
        return self.before + self.last


class TriggerList(Sequence[Trigger]):
    """One cell's triggers or sample as source text; only those that are accessed are read.

    `weights` are the router's weights, if known.
    """

    def __init__(self, slots: Slots, weights: NDArray[np.float16] | None = None) -> None:
        self.slots = slots  # only those that are filled, which come first
        self.weights = None if weights is None else weights[: len(slots.coefficient)]

    @property
    def coefficients(self) -> NDArray[np.float32]:
        """The coefficient of each."""
        return self.slots.coefficient

    def __len__(self) -> int:
        """Number of stored triggers."""
        return len(self.coefficients)

    @overload
    def __getitem__(self, which: int) -> Trigger: ...
    @overload
    def __getitem__(self, which: slice) -> list[Trigger]: ...
    def __getitem__(self, which: int | slice) -> Trigger | list[Trigger]:
        """One of them, or some."""
        if isinstance(which, slice):
            return self._read(which)
        return self._read(slice(which, which + 1 or None))[0]

    def __iter__(self) -> Iterator[Trigger]:
        return iter(self[:])

    def __repr__(self) -> str:
        return repr(self[:])

    def _read(self, which: slice | Sequence[int]) -> list[Trigger]:
        return _read_places(self.slots.store, self.columns(which))

    def columns(self, which: slice | Sequence[int]) -> list[NDArray[Any]]:
        """Sentence number, position, coefficient and weight of some triggers, by their places.

        An unknown weight is NaN.
        """
        slots, unknown = self.slots, np.full(len(self), np.nan, np.float16)
        weights = unknown if self.weights is None else self.weights
        arrays = (slots.number, slots.position, slots.coefficient, weights)
        return [array[which] for array in arrays]


def read_together(*parts: tuple[TriggerList, list[int]]) -> list[list[Trigger]]:
    """Some triggers of several lists of one store, by their places, in one read."""
    columns = zip(*(triggers.columns(places) for triggers, places in parts), strict=True)
    joined = [np.concatenate(column) for column in columns]
    found = iter(_read_places(parts[0][0].slots.store, joined))
    return [list(islice(found, len(places))) for _, places in parts]


def _read_places(store: ScanStore, columns: Sequence[NDArray[Any]]) -> list[Trigger]:
    """Triggers with the text around them, from their slots (see `TriggerList.columns`)."""
    kept, (numbers, positions, coefficients, weights) = store.sentences, columns
    return [
        Trigger(coefficient, number, position, *around, weight if weight == weight else None)
        for coefficient, number, position, around, weight in zip(
            coefficients.tolist(),
            numbers.tolist(),
            positions.tolist(),
            kept.around(kept.rows(numbers), positions),
            weights.tolist(),
            strict=True,
        )
    ]


def read_slots(slots: Slots) -> list[Trigger]:
    """The triggers in some cells' slots, without the weights of routers."""
    unknown = np.full(len(slots), np.nan)
    return _read_places(slots.store, [slots.number, slots.position, slots.coefficient, unknown])


def trigger_columns(cells: Sequence[Address], triggers: Sequence[Trigger]) -> dict[str, list[Any]]:
    """Triggers with the cell of each, as columns; those of a cell stand together, from rank 1."""
    return {
        "address": [str(cell) for cell in cells],
        "rank": [rank for _, own in groupby(cells) for rank, _ in enumerate(own, 1)],
        "coefficient": [one.coefficient for one in triggers],
        "prefix": [one.prefix for one in triggers],
        "last": [one.last for one in triggers],
        "next": [one.next for one in triggers],
        "sentence": [one.sentence for one in triggers],
        "position": [one.position for one in triggers],
    }


def single_triggers(
    store: ScanStore, rows: NDArray[Any], ranks: Sequence[int]
) -> list[Trigger | None]:
    """The trigger of each cell at a rank (from 0); None if the cell has fewer."""
    slots = Slots(store, rows, top=max(ranks, default=0) + 1)
    wanted, width = np.array(ranks, np.int64), slots.mask.shape[1]
    where = np.arange(len(rows)), np.minimum(wanted, width - 1)
    here = slots.mask[where] & (wanted < width)
    among = np.cumsum(slots.mask).reshape(slots.mask.shape) - 1  # place among filled slots
    chosen = among[where][here]
    arrays = (slots.number, slots.position, slots.coefficient)
    columns = [array[chosen] for array in arrays] + [np.full(len(chosen), np.nan)]
    found = iter(_read_places(store, columns))
    return [next(found) if filled else None for filled in here.tolist()]
