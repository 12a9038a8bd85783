"""Cells that match a query, best first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.store.cells import CellRows


@dataclass(frozen=True, eq=False)
class Matches:
    """Cells that match a query, as rows of the store, each with a number; best first.

    `total` is the number of all matches if only the first are here. `looked_at` is the share of
    the places that were counted: 1 unless there were too many.
    """

    rows: CellRows
    scores: NDArray[Any]
    total: int
    looked_at: float = 1.0

    @classmethod
    def of(cls, rows: CellRows, scores: NDArray[Any], looked_at: float = 1.0) -> Matches:
        """All cells."""
        return cls(rows, scores, len(rows), looked_at)

    def by_score(self, most: int | None = None) -> Matches:
        """The same with the highest scores first, or `most` of them.

        It is quick for scores of one or two bytes.
        """
        rows, scores = self.rows, self.scores
        if most is not None and len(rows) > 2 * most and scores.dtype.kind == "u":
            lower = len(rows) - most  # at least so many scores are not wanted
            least = int(np.searchsorted(np.cumsum(np.bincount(scores)), lower, side="right"))
            high = scores >= least
            rows, scores = rows[high], scores[high]
        order = np.argsort(scores.max(initial=0) - scores, kind="stable")[:most]
        return replace(self, rows=rows[order], scores=scores[order])

    @classmethod
    def nothing(cls) -> Matches:
        """No cell."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
