"""Fast lookup in a store of any size: tokens of a value, memories that promote a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.errors import ConditionError, shorten
from ffmem.scan.settings import UNIT
from ffmem.store.cells import CellRows, sign_factor
from ffmem.store.parquet_tables import OTHER, End, read_column, rows_where
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import (
    NUMBERS,
    WORDS,
    Condition,
    agreement_column,
    all_hold,
    cell_column,
)
from ffmem.store.search.index import Arrays, is_current_index, load_arrays, open_index
from ffmem.store.search.matching_cells import Matches
from ffmem.store.search.trigger_words import TriggerWords
from ffmem.store.search.value_ends import IndexedValues, TableValues

STATISTICS = ("fires", "mean", "largest", "probability")
FILTERS: dict[str, Callable[[ScanStore], NDArray[Any]]] = {  # that conditions know besides
    "fire_rate": lambda store: store.fire_counts / max(store.manifest.counts["prefixes"], 1),
    "agreement": agreement_column,
    "layer": lambda store: store.cells.layer_column(),
    "sign": lambda store: store.cells.sign_column(),
    "expert": lambda store: store.cells.expert_column(),
}
TEXTS = (*WORDS, "sign", "expert")  # which have no order


@dataclass(frozen=True)
class TokenPush:
    """A token that a value promotes or suppresses: the logit that a coefficient of 1 adds."""

    token: int
    text: str
    logit: float


def token_texts(store: ScanStore) -> tuple[str, ...]:
    """The text of every token."""
    return tuple(read_column(store, "vocabulary", "text").tolist())


@dataclass(frozen=True, eq=False)
class MemoryIndex:
    """Every query on the cells of a store. Thread-safe.

    It reads the prepared arrays. Without them, queries for tokens read the tables, with the same
    order of results, and the first query for the words of triggers builds the arrays.
    """

    store: ScanStore
    words: tuple[str, ...] = field(repr=False)  # the text of every token
    index: Arrays | None = field(default=None, repr=False)

    @classmethod
    def open(
        cls, store: ScanStore, watch: Callable[[str], None] = lambda _name: None
    ) -> MemoryIndex:
        """Open the arrays, or build them: seconds for a small store, a minute for a large one."""
        return cls(store, token_texts(store), open_index(store, watch))

    @classmethod
    def at_once(cls, store: ScanStore) -> MemoryIndex:
        """Open the arrays if they exist; builds and writes nothing."""
        return cls(
            store, token_texts(store), load_arrays(store) if is_current_index(store) else None
        )

    @cached_property
    def arrays(self) -> Arrays:
        """The prepared arrays; built now if this index was opened without them."""
        return open_index(self.store) if self.index is None else self.index

    @cached_property
    def trigger_words(self) -> TriggerWords:
        """The words of triggers."""
        return TriggerWords(self.store, self.arrays)

    @cached_property
    def _values(self) -> IndexedValues | TableValues:
        """The ends of all values."""
        indexed = self.index is not None and self.store.has_rankings
        return IndexedValues(self.arrays) if indexed else TableValues(self.store)

    def warm(self) -> None:
        """Precompute what the first queries would wait for; a second for a million cells."""
        self.token_ids("")
        self.trigger_words.with_weights({})  # compiles its loop
        for name in STATISTICS:
            if name != "probability" or self.store.has_rankings:
                self.order(name)

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token, text in enumerate(self.words):
            found.setdefault(text, []).append(token)
        return found

    def token_ids(self, text: str) -> list[int]:
        """The tokens whose text is this, also with a space in front; or only without one."""
        spellings = [text] if text.startswith(" ") else [text, " " + text]
        found = [token for one in spellings for token in self._ids.get(one, ())]
        return found or self._ids.get(text.removeprefix(" "), [])

    def pieces(self, text: str) -> list[str]:
        """The fewest tokens that make up a text; empty if the vocabulary cannot spell it."""
        best: list[list[str] | None] = [[], *[None] * len(text)]
        longest = max(map(len, self.words), default=0)
        for end in range(1, len(text) + 1):
            for start in range(max(0, end - longest), end):
                before, part = best[start], text[start:end]
                if before is None or part not in self._ids:
                    continue
                if best[end] is None or len(before) + 1 < len(best[end] or ()):
                    best[end] = [*before, part]
        return best[-1] or []

    def value_tokens(
        self, cell: Address, end: End = "promoted", count: int = 20
    ) -> list[TokenPush]:
        """The tokens that a cell promotes most, or suppresses; strongest first."""
        row, sign = self.store.cells.memory(cell), sign_factor(cell)
        stored = OTHER[end] if sign < 0 else end
        tokens, logits = self._values.ends(row, stored)
        return [
            TokenPush(token, self.words[token], sign * logit)
            for token, logit in zip(tokens[:count].tolist(), logits[:count].tolist(), strict=True)
        ]

    def top_texts(self, rows: CellRows, count: int) -> list[list[str]]:
        """The texts of the tokens that each of some cells promotes most."""
        if self.index is None or not self.store.has_rankings:
            cells = self.store.cells.addresses(rows)
            return [[one.text for one in self.value_tokens(cell, count=count)] for cell in cells]
        memories, negative = self.store.cells.memories_of(rows)
        tokens = self.arrays["promoted"][memories, :count]
        if negative.any():
            tokens = np.where(
                negative[:, None], self.arrays["suppressed"][memories, :count], tokens
            )
        words = self.words
        return [[words[token] for token in row] for row in tokens.tolist()]

    def logits_at(self, rows: CellRows, ranks: CellRows, end: End) -> list[float]:
        """For each of some cells, the logit of the token at a rank (from 0) of an end."""
        if self.index is None:
            places = zip(self.store.cells.addresses(rows), ranks.tolist(), strict=True)
            return [self.value_tokens(cell, end)[rank].logit for cell, rank in places]
        memories, negative = self.store.cells.memories_of(rows)
        own, other = self.arrays[f"{end}_logits"], self.arrays[f"{OTHER[end]}_logits"]
        logits = np.where(negative, -other[memories, ranks], own[memories, ranks])
        return list(logits.tolist())

    def promoters(self, token: int, end: End = "promoted") -> Matches:
        """The cells that have a token among those they promote (or suppress), best rank first."""
        return Matches.of(*self._values.pushing(token, end))

    def ending_in(self, token: int) -> Matches:
        """The cells with two or more triggers that end in a token, most first."""
        table = rows_where(self.store, "endings", "token", token)
        rows = self.store.cells.first_rows(table["layer"]) + table["cell"]
        counts = table["count"]
        order = np.lexsort((rows, -counts))
        return Matches.of(rows[order], counts[order])

    @lru_cache(maxsize=16)  # noqa: B019 - one lookup lives as long as its process
    def statistic(self, name: str) -> NDArray[Any]:
        """One number for every cell: fires, mean, largest, probability, or one of its weights.

        Also `positive`, how often its coefficient is above 0, if firing has another threshold.
        """
        store = self.store
        match name:
            case "fires":
                return store.fire_counts.astype(np.int64)
            case "positive":
                return store.positive_counts.astype(np.int64)
            case "mean":
                fires, totals = store.positive_counts, store.array("totals")
                return (totals * UNIT / np.maximum(fires, 1)).astype(np.float32)
            case "probability":
                found = np.empty(store.cells.count, dtype=np.float32)
                for sign in store.cells.signs:
                    end: End = "suppressed" if sign == "-" else "promoted"
                    found[store.cells.rows_with(sign)] = self._values.probability(end)
                return found
            case _ if name in FILTERS:
                return FILTERS[name](store)
            case _ if name in (*NUMBERS, *WORDS):
                return cell_column(store, name)
            case _:
                return np.asarray(store.array(name))

    def where(self, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
        """The cells for which every condition on statistics and weights holds."""
        known = (*STATISTICS, "positive", *FILTERS, *NUMBERS, *WORDS)
        for condition in conditions:
            if condition.column not in known:
                raise ConditionError(
                    f"memories have no {shorten(condition.column)!r}; choose among "
                    f"{', '.join(known)}"
                )
        return self._holding(tuple(conditions))

    @lru_cache(maxsize=32)  # noqa: B019
    def _holding(self, conditions: tuple[Condition, ...]) -> NDArray[np.bool_]:
        columns = {one.column: self.statistic(one.column) for one in conditions}
        return all_hold(conditions, columns, self.store.cells.count)

    @lru_cache(maxsize=16)  # noqa: B019
    def order(self, name: str) -> NDArray[np.int32]:
        """All rows by a statistic, the largest first; ties by row."""
        return np.argsort(-self.statistic(name), kind="stable").astype(np.int32)

    def first_endings(self, rows: CellRows, token: int) -> list[int]:
        """For each of some cells, the strongest trigger (from 0) that ends in a token."""
        slots, kept = self.store.slots(rows), self.store.sentences
        found = np.zeros(slots.mask.shape, bool)
        found[slots.mask] = kept.tokens[kept.starts[slots.sentence] + slots.position - 1] == token
        ranks: list[int] = found.argmax(axis=1).tolist()
        return ranks
