"""Loose triggers on their way into a layer's state, in no order and of any number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.corpus.shards import EMPTY


@dataclass(frozen=True)
class Candidates:
    """What may enter a state: one entry per index, each field [n].

    `cells` is int32, `coefficients` float32 above zero, `places` and `groups` int64. In a layer
    with experts `weights` are the router's (float16), 0 in a shared expert.
    """

    cells: Tensor
    coefficients: Tensor
    places: Tensor
    groups: Tensor | None = None
    weights: Tensor | None = None

    def __len__(self) -> int:
        return self.cells.shape[0]

    @property
    def fields(self) -> list[Tensor]:
        """The tensors, groups and then weights last if there are any."""
        fields = (self.cells, self.coefficients, self.places, self.groups, self.weights)
        return [field for field in fields if field is not None]

    def of(self, fields: list[Tensor]) -> Candidates:
        """Others with the same kinds of fields."""
        cells, coefficients, places, *more = fields
        groups = None if self.groups is None else more.pop(0)
        return Candidates(
            cells, coefficients, places, groups, None if self.weights is None else more.pop(0)
        )

    def at(self, indices: Tensor) -> Candidates:
        """Those at the given indices, or where a mask is true."""
        return self.of([field[indices] for field in self.fields])

    @classmethod
    def join(cls, parts: list[Candidates]) -> Candidates:
        """All parts as one; there must be at least one."""
        columns = zip(*(part.fields for part in parts), strict=True)
        return parts[0].of([torch.cat(column) for column in columns])


@dataclass(frozen=True)
class Table:
    """Candidates side by side, one row for each of some cells: [n, columns], and which cells: [n].

    Free slots are blank: coefficient 0, place EMPTY, group 0, weight 0.
    """

    cells: Tensor
    fields: list[Tensor]


def tables(found: Candidates, cells: int, width: int = 128) -> list[Table]:
    """The candidates in tables at most `width` wide; cells with more of them come again."""
    order = _order_by_cell(found.cells)
    numbers = torch.arange(cells + 1, dtype=torch.int32, device=order.device)
    starts = torch.searchsorted(found.cells[order], numbers)
    counts = starts.diff()
    most = int(counts.max())
    made = []
    for passed in range(0, most, width):
        rows = (counts > passed).nonzero()[:, 0]
        columns = torch.arange(passed, min(passed + width, most), device=order.device)
        free = columns >= counts[rows, None]
        picked = order.take((starts[rows, None] + columns).masked_fill_(free, 0))
        blanks = zip(found.fields[1:], (0.0, EMPTY, 0, 0), strict=False)
        fields = [field.take(picked).masked_fill_(free, blank) for field, blank in blanks]
        made.append(Table(rows, fields))
    return made


def row_order(keys: Tensor, places: Tensor) -> Tensor:
    """What sorts each row by its keys (0 to 2**32), smallest first, and equals by place."""
    if keys.device.type != "cpu":
        by_place = places.argsort(dim=1)
        return by_place.gather(1, keys.gather(1, by_place).argsort(dim=1, stable=True))
    # numpy sorts rows many times faster than torch, and numbers faster than indices: so each
    # key carries its column, which also makes the sort stable.
    by_place = torch.from_numpy(np.argsort(places.numpy(), axis=1))
    numbered = (keys.long().gather(1, by_place) << 20) | torch.arange(keys.shape[1])
    columns = torch.from_numpy(np.sort(numbered.numpy(), axis=1)) & (2**20 - 1)
    return by_place.gather(1, columns)


def _order_by_cell(cells: Tensor) -> Tensor:
    if cells.device.type != "cpu":
        return cells.argsort(stable=True)
    numbered = (cells.long() << 32) | torch.arange(len(cells))
    return torch.from_numpy(np.sort(numbered.numpy())) & (2**32 - 1)
