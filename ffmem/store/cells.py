"""Cells and their rows: a memory is one cell, and in a gated scan two, one for each sign.

Every array of a store has one row for each cell: layer by layer, and within a gated layer all `+`
cells before all `-` cells. No other module knows this order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address, Parts, Sign
from ffmem.errors import AddressError

CellRows = NDArray[np.int64]
OPPOSITE: dict[Sign, Sign] = {"+": "-", "-": "+"}


def sign_factor(cell: Address) -> int:
    """What a memory's coefficient and value are multiplied with to be those of its cell."""
    return -1 if cell.sign == "-" else 1


@dataclass(frozen=True)
class Cells:
    """The cells of some layers, each given as (number, memories); those of experts with parts."""

    layers: tuple[tuple[int, int], ...]
    signed: bool
    mixtures: Mapping[int, Parts] = field(default_factory=dict)

    def parts(self, layer: int) -> Parts:
        """The parts of a layer: its experts, or the one of a dense layer."""
        found = self.mixtures.get(layer)
        return Parts.dense(self.memories[layer]) if found is None else found

    @cached_property
    def signs(self) -> tuple[Sign, ...]:
        """The signs of every memory's cells, in the order of their rows."""
        return ("+", "-") if self.signed else ("",)

    @cached_property
    def memories(self) -> dict[int, int]:
        """Memories of every layer, by its number."""
        return dict(self.layers)

    @cached_property
    def count(self) -> int:
        """Cells in all layers."""
        return len(self.signs) * sum(self.memories.values())

    @cached_property
    def _first_memories(self) -> dict[int, int]:
        """The number of each layer's first memory, counted over all layers."""
        sizes = list(self.memories.values())
        return dict(zip(self.memories, np.cumsum([0, *sizes])[:-1].tolist(), strict=True))

    @cached_property
    def _columns(self) -> tuple[CellRows, CellRows, CellRows, CellRows]:
        """Of every layer: its number, memories, first memory, first row."""
        numbers, sizes = np.array(self.layers, dtype=np.int64).reshape(-1, 2).T
        before = np.cumsum(sizes) - sizes
        return numbers, sizes, before, before * len(self.signs)

    def expert_row(self, cell: Address) -> int | None:
        """The row of a cell's expert, counted over all layers; None for one that is not chosen."""
        if not cell.part.startswith("E"):
            return None
        before = sum(parts.experts for layer, parts in self.mixtures.items() if layer < cell.layer)
        return before + self.parts(cell.layer).expert_numbers.index(int(cell.part[1:]))

    def mixture_row(self, cell: Address) -> int | None:
        """A cell's row in arrays of layers with experts only; None in another layer."""
        if cell.layer not in self.mixtures:
            return None
        before = [layer for layer in self.mixtures if layer < cell.layer]
        cells = len(self.signs) * sum(self.memories[layer] for layer in before)
        return cells + self.row(cell) - self.rows_of(cell.layer).start

    def resolve(self, address: Address) -> tuple[Address, ...]:
        """The address itself, or both signs of a gated memory named without one."""
        self.check_layer(address.layer)
        self.parts(address.layer).index(address, "the scan")
        if address.sign and not self.signed:
            raise AddressError(
                f"{address} names one sign, but the scan's layers are not gated; "
                f"write {address.memory}"
            )
        if address.sign in self.signs:
            return (address,)
        return tuple(replace(address, sign=sign) for sign in self.signs)

    def check_layer(self, layer: int) -> None:
        """Refuse a layer that was not scanned."""
        if layer not in self.memories:
            known = ", ".join(map(str, self.memories))
            raise AddressError(f"the scan has no layer {layer}; its layers are {known}")

    def row(self, cell: Address) -> int:
        """The row of one cell in every array."""
        second_half = self.memories[cell.layer] if cell.sign == "-" else 0
        first = len(self.signs) * self._first_memories[cell.layer]
        return first + second_half + self._index(cell)

    def _index(self, cell: Address) -> int:
        """The place of a cell's memory in its layer."""
        return self.parts(cell.layer).index(cell, "the scan") if cell.part else cell.index

    def address(self, row: int) -> Address:
        """The cell of one row."""
        return self.addresses([row])[0]

    def addresses(self, rows: Sequence[int] | NDArray[Any]) -> list[Address]:
        """The cells of some rows."""
        numbers, sizes, _, first_rows = self._columns
        layer = np.searchsorted(first_rows, rows, side="right") - 1
        sign, index = np.divmod(np.asarray(rows) - first_rows[layer], sizes[layer])
        columns = (numbers[layer].tolist(), index.tolist(), sign.tolist())
        if not self.mixtures:
            return [Address(n, i, self.signs[s]) for n, i, s in zip(*columns, strict=True)]
        parts = {number: self.parts(number) for number in self.memories}
        return [parts[n].address(n, i, self.signs[s]) for n, i, s in zip(*columns, strict=True)]

    def rows_of(self, layer: int) -> slice:
        """The rows of a layer's cells."""
        first = len(self.signs) * self._first_memories[layer]
        return slice(first, first + len(self.signs) * self.memories[layer])

    def first_rows(self, layers: NDArray[Any]) -> CellRows:
        """The row of the first cell of each of some layers, by their numbers."""
        numbers, _, _, first_rows = self._columns
        order = np.argsort(numbers)
        return first_rows[order[np.searchsorted(numbers, layers, sorter=order)]]

    def within(self, layer: int, sign: Sign) -> slice:
        """The slice of one sign's cells among those of their layer."""
        memories = self.memories[layer]
        first = memories * self.signs.index(sign)
        return slice(first, first + memories)

    def in_layer(self, layer: int, places: Sequence[int] | NDArray[Any]) -> list[Address]:
        """Some cells of a layer, by their places among its cells."""
        return self.addresses(self.rows_of(layer).start + np.asarray(places))

    def rows_with(self, sign: Sign) -> CellRows:
        """The rows of one sign's cells, memory by memory over all layers."""
        parts = [
            self.rows_of(layer).start + np.arange(memories) + self.within(layer, sign).start
            for layer, memories in self.layers
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def layer_column(self) -> CellRows:
        """The layer of every row."""
        sizes = [len(self.signs) * memories for _, memories in self.layers]
        return np.repeat(np.array([number for number, _ in self.layers], np.int64), sizes)

    def sign_column(self) -> NDArray[np.str_]:
        """The sign of every row."""
        found = np.full(self.count, "", dtype="<U1")
        for sign in self.signs:
            found[self.rows_with(sign)] = sign
        return found

    def expert_column(self) -> NDArray[np.str_]:
        """The expert of every row, E3 or S; nothing in a dense layer."""
        every = [self.parts(layer).sizes for layer in self.memories for _ in self.signs]
        names = [name for sizes in every for name in sizes]
        return np.repeat(np.array(names), [size for sizes in every for size in sizes.values()])

    def opposite(self, cell: Address) -> Address | None:
        """The other sign of a gated memory; None where memories have one cell."""
        return replace(cell, sign=OPPOSITE[cell.sign]) if cell.sign else None

    def memory(self, cell: Address) -> int:
        """A cell's memory, counted over all layers."""
        return self._first_memories[cell.layer] + self._index(cell)

    def memories_of(self, rows: CellRows) -> tuple[CellRows, NDArray[np.bool_]]:
        """The memories of some rows, counted over all layers, and which rows are `-` cells."""
        _, sizes, first_memories, first_rows = self._columns
        layer = np.searchsorted(first_rows, rows, side="right") - 1
        sign, index = np.divmod(rows - first_rows[layer], sizes[layer])
        return first_memories[layer] + index, sign > 0
