"""Loose triggers on their way into a layer's state, in no order and of any number."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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

    def by_place(self) -> Candidates:
        """In order of place, so that stable sorts by anything else leave ties settled."""
        return self.at(self.places.argsort())

    @classmethod
    def joined(cls, parts: list[Candidates]) -> Candidates:
        """All parts as one; there must be at least one."""
        columns = zip(*(part.fields for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))


def slots_of(cells: Tensor, number: int, k: int) -> Tensor:
    """The slot in a [number, k] table of each entry of a list sorted by cell.

    Entries take their cell's slots in the list's order; those after the k-th get slot number * k,
    one past the table.
    """
    cells = cells.contiguous()
    starts = torch.searchsorted(cells, torch.arange(number, dtype=cells.dtype, device=cells.device))
    rank = torch.arange(cells.shape[0], device=cells.device) - starts[cells.long()]
    return torch.where(rank < k, cells.long() * k + rank, number * k)


def tabled(entries: Tensor, slots: Tensor, blank: Tensor) -> Tensor:
    """The blank [cells, k] table with each entry in its slot; slots past the table are dropped."""
    table = torch.empty(blank.numel() + 1, dtype=blank.dtype, device=blank.device)
    table[:-1] = blank.flatten()
    table[slots] = entries.to(blank.dtype)
    return table[:-1].view_as(blank)
