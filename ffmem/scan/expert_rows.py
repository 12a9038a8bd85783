"""Rows of experts: which lines of a mixture's coefficients are the prefixes of a sentence."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ffmem.models.experts.routing import RoutedCoefficients
from ffmem.scan.batch_rows import BatchRows, LineIndex

_Prefixes = tuple[Tensor, Tensor, Tensor | None]  # lines, their places, and their groups


def content_lines(
    rows: BatchRows, routed: RoutedCoefficients, positions: int
) -> RoutedCoefficients:
    """The lines at content, in a batch of `positions` columns: all, where everything is content."""
    if rows.lines is None:
        return routed
    is_content = torch.zeros(positions, dtype=torch.bool, device=rows.lines.device)
    is_content[rows.lines] = True
    own = is_content[routed.places]
    return RoutedCoefficients(*(getattr(routed, one.name)[own] for one in fields(routed)))


def routed_rows(rows: BatchRows, routed: RoutedCoefficients, width: int) -> BatchRows:
    """A row for every expert and sentence that meet in a batch of rows of `width` columns.

    Lines are sorted by expert and then by place, so the admissible prefixes of such a row stand
    one behind the other, as in a dense layer they do in columns.
    """
    find = _prefixes_in_columns if rows.lines is None else _prefixes_in_content
    lines, own_places, own_groups = find(rows, routed, width)
    row, expert = routed.places[lines] // width, routed.experts[lines]
    _, counts = torch.unique_consecutive(expert * len(rows) + row, return_counts=True)
    first = counts.cumsum(0) - counts
    places = torch.zeros(len(routed.places), dtype=torch.int64, device=lines.device)
    places[lines] = own_places
    groups = None
    if own_groups is not None:
        groups = torch.zeros_like(places)
        groups[lines] = own_groups
    starts = lines[first]
    weights = routed.weights.to(torch.float16)
    routing = LineIndex(starts, expert[first], places, groups, lines, weights)
    factors = torch.zeros_like(rows.places)
    factors[rows.census] = rows.factors
    factors = factors[row[first]]
    census = factors.nonzero()[:, 0]
    priorities = rows.priorities[row[first]]
    return BatchRows(
        0, counts, places[starts], priorities, None, census, factors[census], routing=routing
    )


@dataclass(frozen=True)
class LineTable:
    """Where the admissible lines of every expert and sentence are, none left out.

    A GPU makes it without telling the host how many experts and sentences meet, for which the host
    would have to wait. `starts` and `counts` [expert x sentence] are the first line and how many;
    `positions` [line] those in the batch, counted through rows of `width`; `weights` [line] the
    router's (float16); `admissible` [line] says which lines are of a prefix.
    """

    rows: BatchRows  # of the batch
    width: int
    positions: Tensor
    weights: Tensor
    admissible: Tensor
    starts: Tensor
    counts: Tensor

    @property
    def experts(self) -> int:
        """How many experts the lines belong to."""
        return len(self.counts) // max(len(self.rows), 1)


def line_table(rows: BatchRows, routed: RoutedCoefficients, width: int, experts: int) -> LineTable:
    """The lines of the routed experts."""
    row, column = routed.places // width, routed.places % width - rows.first
    own = routed.experts * len(rows) + row
    admissible = (column >= 0) & (column < rows.counts[row])
    size, lines = experts * len(rows), torch.arange(len(own), device=own.device)
    counts = torch.zeros(size, dtype=torch.int32, device=own.device)
    counts.index_add_(0, own, admissible.to(torch.int32))
    starts = torch.full((size,), len(own), device=own.device)
    starts.scatter_reduce_(0, own, lines.where(admissible, len(own)), "amin")
    weights = routed.weights.to(torch.float16)
    return LineTable(rows, width, routed.places, weights, admissible, starts, counts)


def table_of_columns(rows: BatchRows, width: int) -> LineTable:
    """The lines of a shared expert: every column of every row, without a router's weight."""
    positions = torch.arange(len(rows) * width, device=rows.counts.device)
    weights = torch.zeros_like(positions, dtype=torch.float16)
    starts, every = rows.starts(width), torch.ones_like(positions, dtype=torch.bool)
    return LineTable(rows, width, positions, weights, every, starts, rows.counts)


def _prefixes_in_columns(rows: BatchRows, routed: RoutedCoefficients, width: int) -> _Prefixes:
    row, column = routed.places // width, routed.places % width - rows.first
    lines = ((column >= 0) & (column < rows.counts[row])).nonzero()[:, 0]
    row, column = row[lines], column[lines]
    groups = None if rows.groups is None else rows.groups[row, column]
    return lines, rows.places[row] + column, groups


def _prefixes_in_content(rows: BatchRows, routed: RoutedCoefficients, width: int) -> _Prefixes:
    assert rows.lines is not None
    assert rows.routing is not None
    at = torch.zeros(len(rows) * width, dtype=torch.int64, device=rows.lines.device)
    at[rows.lines] = torch.arange(len(rows.lines), device=at.device)
    own = at[routed.places]
    groups = None if rows.routing.groups is None else rows.routing.groups[own]
    return torch.arange(len(own), device=own.device), rows.routing.places[own], groups
