"""The rows of a batch as the experts of a layer see them: each only the places routed to it."""

from __future__ import annotations

import torch

from ffmem.models.moe.experts import RoutedCoefficients
from ffmem.scan.batch_rows import Routing, Rows


def routed_rows(rows: Rows, routed: RoutedCoefficients, width: int) -> Rows:
    """A row for every expert and sentence that meet in a batch of rows of `width` columns.

    Lines are sorted by expert and then by place, so the admissible prefixes of such a row stand
    one behind the other, as in a dense layer they do in columns.
    """
    row, column = routed.places // width, routed.places % width - rows.first
    admissible = (column >= 0) & (column < rows.counts[row])
    lines = admissible.nonzero()[:, 0]
    row, column, expert = row[lines], column[lines], routed.experts[lines]
    _, counts = torch.unique_consecutive(expert * len(rows) + row, return_counts=True)
    first = counts.cumsum(0) - counts
    places = torch.zeros(len(routed.places), dtype=torch.int64, device=lines.device)
    places[lines] = rows.places[row] + column
    groups = None
    if rows.groups is not None:
        groups = torch.zeros_like(places)
        groups[lines] = rows.groups[row, column]
    starts = lines[first]
    weights = routed.weights.to(torch.float16)
    routing = Routing(starts, expert[first], places, groups, lines, weights)
    factors = torch.zeros_like(rows.places)
    factors[rows.census] = rows.factors
    factors = factors[row[first]]
    census = factors.nonzero()[:, 0]
    priorities = rows.priorities[row[first]]
    return Rows(
        0, counts, places[starts], priorities, None, census, factors[census], routing=routing
    )
