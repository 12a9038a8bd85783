"""Both ends of the values of a scan: from the prepared arrays, or from its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.store.parquet_tables import (
    PROBABILITY_COLUMN,
    End,
    all_pushes,
    by_token,
    end_column,
    value_row,
)
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.index import PUSHING, Arrays


@dataclass(frozen=True, eq=False)
class IndexedValues:
    """The ends of values from the prepared arrays: every answer is a slice."""

    arrays: Arrays

    def ends(self, memory: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tokens at one end of a value, strongest first, and their logits."""
        return self.arrays[end][memory], self.arrays[f"{end}_logits"][memory]

    def pushing(self, token: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of the cells that have a token at an end, in order, and its rank in each."""
        (kind,) = (name for name, pushed in PUSHING.items() if pushed == end)
        start, stop = self.arrays[f"{kind}_starts"][token : token + 2].tolist()
        rows, ranks = self.arrays[f"{kind}_rows"], self.arrays[f"{kind}_ranks"]
        return rows[start:stop], ranks[start:stop]

    def probability(self, end: End) -> NDArray[np.float32]:
        """Of every memory, the probability of the end's first token."""
        return self.arrays[PROBABILITY_COLUMN[end]]


@dataclass(frozen=True, eq=False)
class TableValues:
    """The ends of values from the scan's table: every answer reads only the parts it needs.

    Before values are ranked each has no tokens, and questions about all of them are refused.
    """

    store: ScanStore

    def ends(self, memory: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tokens at one end of a value, strongest first, and their logits."""
        if not self.store.has_rankings:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        tokens, logits = value_row(self.store, [end, f"{end}_logits"], memory)
        return tokens, logits

    def pushing(self, token: int, end: End) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of the cells that have a token at an end, in order, and its rank in each."""
        starts, rows, ranks = by_token(all_pushes(self.store, end).with_token(token), token + 1)
        return rows[starts[token] : starts[token + 1]], ranks[starts[token] : starts[token + 1]]

    def probability(self, end: End) -> NDArray[np.float32]:
        """Of every memory, the probability of the end's first token."""
        return end_column(self.store, PROBABILITY_COLUMN[end])
