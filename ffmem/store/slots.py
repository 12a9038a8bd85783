"""The slots of cells: each holds a trigger, or a sampled prefix, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from ffmem.store.range_checks import check_coefficients, check_places, contradictions
from ffmem.store.scan_writer import NO_SENTENCE

if TYPE_CHECKING:
    from ffmem.store.scan_store import ScanStore

Kind = Literal["trigger", "sample"]
TRIGGERS_SHOWN = 25  # of a cell's triggers, to people and to annotators, as in the paper


@dataclass(frozen=True, eq=False)
class Slots:
    """What fills the slots of some cells, in their order, strongest first; read when asked for.

    `mask` [cell, slot] says which slots hold something. The other arrays have one entry for each
    that does, row by row. `top` leaves all but a cell's first slots out.
    """

    store: ScanStore
    rows: slice | Sequence[int] | NDArray[Any]
    kind: Kind = "trigger"
    top: int | None = None

    def _array(self, name: str) -> NDArray[Any]:
        return np.asarray(self.store.array(f"{self.kind}_{name}")[self.rows, : self.top])

    @cached_property
    def _numbers(self) -> NDArray[np.uint32]:
        return self._array("sentences")

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which slots hold something."""
        return self._numbers != NO_SENTENCE

    def __len__(self) -> int:
        """How many slots hold something."""
        return int(np.count_nonzero(self.mask))

    @cached_property
    def cell(self) -> NDArray[np.int64]:
        """The cell of each filled slot, by its place among the rows."""
        return np.nonzero(self.mask)[0]

    @cached_property
    def number(self) -> NDArray[np.uint32]:
        """The number of the sentence in the corpus."""
        return self._numbers[self.mask]

    @cached_property
    def sentence(self) -> NDArray[np.int64]:
        """The row of the sentence among the kept ones; a KeyError if one is not there."""
        return self.store.sentences.rows(self.number)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """Tokens of the sentence that were read."""
        return self._array("positions")[self.mask].astype(np.int64)

    @cached_property
    def coefficient(self) -> NDArray[np.float32]:
        """The cell's coefficient there."""
        return self._array("coefficients")[self.mask]

    def distinct_sentences(self) -> NDArray[np.int64]:
        """The rows of the sentences that are in any slot, each once, in order."""
        return self.store.sentences.rows(np.unique(self.number))


@dataclass(frozen=True)
class Trigger:
    """A prefix that fires a memory: `before` + `last` is what was read, `next` what followed.

    In a mixture of experts `weight` is the router's for the memory's expert there.
    """

    coefficient: float
    sentence: int
    position: int
    before: str
    last: str
    next: str
    rest: str
    weight: float | None = None


class Triggers(Sequence[Trigger]):
    """One cell's triggers or sample, in source text; only those that are looked at are read.

    `weights` are the router's, where they are known.
    """

    def __init__(self, slots: Slots, weights: NDArray[np.float16] | None = None) -> None:
        self.slots = slots  # only those that are filled, which come first
        self.weights = None if weights is None else weights[: len(slots.coefficient)]
        with self._damage():
            check_coefficients(slots.coefficient, in_order=slots.kind == "trigger")

    def _damage(self) -> Any:
        return contradictions(self.slots.store, self.slots.kind)

    @property
    def coefficients(self) -> NDArray[np.float32]:
        """The coefficient of each."""
        return self.slots.coefficient

    def __len__(self) -> int:
        """How many are stored."""
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

    def at(self, places: Sequence[int]) -> list[Trigger]:
        """Those at some places, read together."""
        return self._read(np.array(places, dtype=np.int64)) if places else []

    def __iter__(self) -> Iterator[Trigger]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(self[:])

    def _read(self, which: slice | NDArray[np.int64]) -> list[Trigger]:
        slots, kept = self.slots, self.slots.store.sentences
        positions = slots.position[which]
        with self._damage():
            rows = kept.rows(slots.number[which])
            check_places(kept, rows, positions)
            columns = (slots.coefficient[which], slots.number[which], positions)
            weights = [None] * len(rows) if self.weights is None else self.weights[which].tolist()
            return [
                Trigger(coefficient, number, position, *around, weight)
                for coefficient, number, position, around, weight in zip(
                    *(column.tolist() for column in columns),
                    kept.around(rows, positions),
                    weights,
                    strict=True,
                )
            ]


def single_triggers(
    store: ScanStore, rows: NDArray[Any], ranks: Sequence[int]
) -> list[Trigger | None]:
    """One trigger of each of some cells, by its rank from 0; None where a cell has no such one."""
    slots = Slots(store, rows, top=max(ranks, default=0) + 1)
    width = slots.mask.shape[1]
    where = np.arange(len(rows)), np.minimum(ranks, width - 1)
    here = slots.mask[where] & (np.array(ranks) < width)
    among = np.cumsum(slots.mask).reshape(slots.mask.shape) - 1  # place among filled slots
    chosen = among[where][here]
    kept, positions = store.sentences, slots.position[chosen]
    with contradictions(store, "trigger"):
        sentences = kept.rows(slots.number[chosen])
        check_places(kept, sentences, positions)
        columns = (slots.coefficient[chosen], slots.number[chosen], positions)
        found = iter(
            [
                Trigger(coefficient, number, position, *around)
                for coefficient, number, position, around in zip(
                    *(column.tolist() for column in columns),
                    kept.around(sentences, positions),
                    strict=True,
                )
            ]
        )
    return [next(found) if filled else None for filled in here.tolist()]
