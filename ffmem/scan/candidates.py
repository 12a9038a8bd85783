"""Loose triggers on their way into a layer's state, in no order and of any number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.scan.places import EMPTY


@dataclass(frozen=True)
class Candidates:
    """What may enter a state: one entry per index, each field [n].

    `cells` is int32, `coefficients` float32 above zero, `places` and `groups` int64.
    """

    cells: Tensor
    coefficients: Tensor
    places: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return self.cells.shape[0]

    @property
    def fields(self) -> list[Tensor]:
        """The tensors, groups last if there are any."""
        fields = [self.cells, self.coefficients, self.places]
        return fields if self.groups is None else [*fields, self.groups]

    def at(self, indices: Tensor) -> Candidates:
        """Those at the given indices, or where a mask is true."""
        return Candidates(*(field[indices] for field in self.fields))

    @classmethod
    def joined(cls, parts: list[Candidates]) -> Candidates:
        """All parts as one; there must be at least one."""
        columns = zip(*(part.fields for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))


def tables(found: Candidates, cells: int, width: int) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """The candidates in tables of at most `width` columns: the cells of its rows, and its fields.

    A cell with more than `width` candidates comes again in the next table. Free slots are blank:
    coefficient 0, place EMPTY, group 0.
    """
    order = _order_by_cell(found.cells)
    sorted_cells = found.cells[order]
    numbers = torch.arange(cells + 1, dtype=torch.int32, device=order.device)
    starts = torch.searchsorted(sorted_cells, numbers)
    counts = starts.diff()
    most = int(counts.max())
    for passed in range(0, most, width):
        rows = (counts > passed).nonzero()[:, 0]
        columns = torch.arange(passed, min(passed + width, most), device=order.device)
        there = columns < counts[rows, None]
        slots = torch.where(there, starts[rows, None] + columns, 0)
        picked = order[slots]
        blanks = zip(found.fields[1:], (0.0, EMPTY, 0), strict=False)
        yield rows, [field[picked].masked_fill_(~there, blank) for field, blank in blanks]


def row_order(keys: Tensor, places: Tensor) -> Tensor:
    """What sorts each row by its keys, smallest first, and equals by place.

    On the CPU numpy sorts rows several times faster than torch.
    """
    if keys.device.type != "cpu":
        by_place = places.argsort(dim=1)
        return by_place.gather(1, keys.gather(1, by_place).argsort(dim=1, stable=True))
    earliest = np.argsort(places.numpy(), axis=1)
    by_key = np.argsort(np.take_along_axis(keys.numpy(), earliest, 1), axis=1, kind="stable")
    return torch.from_numpy(np.take_along_axis(earliest, by_key, 1))


def _order_by_cell(cells: Tensor) -> Tensor:
    if cells.device.type != "cpu":
        return cells.argsort(stable=True)
    # Sorting numbers is far faster than sorting indices, so each number carries its index.
    numbered = (cells.long() << 32) | torch.arange(len(cells))
    return torch.from_numpy(np.sort(numbered.numpy())) & (2**32 - 1)
