"""Quick answers from a store of any size: what a value promotes, and who promotes a token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.scan.tallies import UNIT
from ffmem.store.prepared import Arrays, prepared, read_column
from ffmem.store.scan_store import ScanStore
from ffmem.store.search import TokenPush
from ffmem.store.trigger_words import folded, word_spans

End = Literal["promoted", "suppressed"]
Rows = NDArray[np.int64]
OTHER: dict[End, End] = {"promoted": "suppressed", "suppressed": "promoted"}
STATISTICS = ("fires", "mean", "largest", "probability")


@dataclass(frozen=True, eq=False)
class Found:
    """Cells that answer a question, by their rows in the store, each with a number; best first."""

    rows: Rows
    scores: NDArray[Any]

    @classmethod
    def nothing(cls) -> Found:
        """No cell."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class Lookup:
    """The prepared arrays of a store, with the questions they answer. Safe for many threads."""

    store: ScanStore
    arrays: Arrays = field(repr=False)
    words: tuple[str, ...] = field(repr=False)  # the text of every token

    @classmethod
    def open(cls, store: ScanStore, watch: Callable[[str], None] = lambda _name: None) -> Lookup:
        """Open the arrays, or make them: seconds for a small store, a minute for a large one."""
        arrays = prepared(store, watch)
        return cls(store, arrays, tuple(map(str, read_column(store, "vocabulary", "text"))))

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token, text in enumerate(self.words):
            found.setdefault(text, []).append(token)
        return found

    def token_ids(self, text: str) -> list[int]:
        """The tokens whose text is exactly this; if there is none, with a space in front of it."""
        return self._ids.get(text) or self._ids.get(" " + text, [])

    @cached_property
    def _layers(self) -> tuple[NDArray[np.int64], Rows, Rows, Rows]:
        """Of every layer: its number, memories, first memory, first cell."""
        numbers, sizes = np.array(self.store.manifest.layers, dtype=np.int64).T
        before = np.cumsum(sizes) - sizes
        return numbers, sizes, before, before * (2 if self.store.manifest.signed else 1)

    @property
    def cells(self) -> int:
        """Cells in all layers."""
        return int(self._layers[1].sum()) * (2 if self.store.manifest.signed else 1)

    def cell_rows(self, memories: NDArray[Any], negative: bool) -> Rows:
        """The rows of one sign's cells of memories counted over all layers."""
        _, sizes, first_memory, first_cell = self._layers
        layer = np.searchsorted(first_memory, memories, side="right") - 1
        rows = first_cell[layer] + memories - first_memory[layer]
        return rows + sizes[layer] if negative else rows

    def addresses(self, rows: Rows) -> list[Address]:
        """The addresses of cells."""
        numbers, _, _, first_cell = self._layers
        layer = np.searchsorted(first_cell, rows, side="right") - 1
        cells = (rows - first_cell[layer]).tolist()
        pairs = zip(numbers[layer].tolist(), cells, strict=True)
        return [self.store.address(number, cell) for number, cell in pairs]

    def one(self, row: int) -> Address:
        """The address of one cell."""
        return self.addresses(np.array([row]))[0]

    def layer_rows(self, number: int) -> slice:
        """The rows of a layer's cells."""
        first = self.store._first_rows[number]
        size = self.store.memories[number] * (2 if self.store.manifest.signed else 1)
        return slice(first, first + size)

    def memory(self, cell: Address) -> int:
        """A cell's memory, counted over all layers."""
        layer = list(self.store.memories).index(cell.layer)
        return int(self._layers[2][layer]) + cell.index

    def pushes(self, cell: Address, end: End = "promoted", count: int = 20) -> list[TokenPush]:
        """The tokens that a cell promotes most, or suppresses; strongest first."""
        stored = OTHER[end] if cell.sign == "-" else end
        row, sign = self.memory(cell), -1 if cell.sign == "-" else 1
        tokens = self.arrays[stored][row][:count].tolist()
        logits = self.arrays[f"{stored}_logits"][row][:count].tolist()
        return [
            TokenPush(token, self.words[token], sign * logit)
            for token, logit in zip(tokens, logits, strict=True)
        ]

    def pushing(self, token: int, end: End = "promoted") -> Found:
        """The cells that have a token among those they promote (or suppress), by its rank."""
        rows, ranks = self._pushing(token, end, negative=False)
        if self.store.manifest.signed:
            others, more = self._pushing(token, OTHER[end], negative=True)
            rows, ranks = np.concatenate([rows, others]), np.concatenate([ranks, more])
            order = np.argsort(ranks, kind="stable")
            rows, ranks = rows[order], ranks[order]
        return Found(rows, ranks)

    def _pushing(self, token: int, end: End, negative: bool) -> tuple[Rows, Rows]:
        starts = self.arrays[f"{end}_starts"]
        places = self.arrays[f"{end}_places"][int(starts[token]) : int(starts[token + 1])]
        memories, ranks = np.divmod(places.astype(np.int64), self.arrays[end].shape[1])
        return self.cell_rows(memories, negative), ranks

    @lru_cache(maxsize=16)  # noqa: B019 - one lookup lives as long as its process
    def statistic(self, name: str) -> NDArray[Any]:
        """One number for every cell: fires, mean, largest or probability."""
        store = self.store
        match name:
            case "mean":
                fires, totals = store.array("fires"), store.array("totals")
                return (totals * UNIT / np.maximum(fires, 1)).astype(np.float32)
            case "probability":
                memories = np.arange(len(self.arrays["probability"]))
                found = np.empty(self.cells, dtype=np.float32)
                found[self.cell_rows(memories, negative=False)] = self.arrays["probability"]
                if store.manifest.signed:
                    other = self.arrays["suppressed_probability"]
                    found[self.cell_rows(memories, negative=True)] = other
                return found
            case _:
                return np.asarray(store.array(name))

    @lru_cache(maxsize=16)  # noqa: B019
    def order(self, name: str) -> NDArray[np.int32]:
        """All rows by a statistic, the largest first; of equals the earlier row."""
        return np.argsort(-self.statistic(name), kind="stable").astype(np.int32)

    def word_number(self, word: str) -> int | None:
        """The place of a word among all words of triggers, or None."""
        starts, text = self.arrays["word_text_starts"], self.arrays["word_text"]

        def name(place: int) -> bytes:
            return bytes(text[starts[place] : starts[place + 1]])

        wanted, count = folded(word.encode()), len(starts) - 1
        place = bisect_left(range(count), wanted, key=name)
        return place if place < count and name(place) == wanted else None

    def with_words(self, phrase: str) -> Found:
        """The cells with most triggers (of the 25 strongest) that hold all words of a phrase."""
        raw = np.frombuffer(phrase.encode(), dtype=np.uint8)
        starts, ends = word_spans(raw, np.array([0, len(raw)]))
        names = [bytes(raw[a:b]).decode() for a, b in zip(starts, ends, strict=True)]
        return self._with_words(tuple(sorted({name.lower() for name in names})))

    @lru_cache(maxsize=256)  # noqa: B019
    def _with_words(self, names: Sequence[str]) -> Found:
        numbers = [self.word_number(name) for name in names]
        if not numbers or None in numbers:
            return Found.nothing()
        sentences, read = self._sentences_with([number for number in numbers if number is not None])
        firsts = self.arrays["sentence_starts"]
        starts, sizes = firsts[sentences], firsts[sentences + 1] - firsts[sentences]
        where = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        whole = self.arrays["sentence_read"][where] >= np.repeat(read, sizes)
        counts = np.bincount(self.arrays["sentence_cells"][where[whole]], minlength=1)
        rows = np.flatnonzero(counts)
        order = np.argsort(-counts[rows], kind="stable")
        return Found(rows[order], counts[rows][order])

    def _sentences_with(self, numbers: Sequence[int]) -> tuple[Rows, Rows]:
        """Sentences that hold every word, and the tokens read when the last one is whole."""
        starts = self.arrays["word_starts"]
        sentences, read = None, np.zeros(0, np.int64)
        for number in sorted(numbers, key=lambda n: int(starts[n + 1] - starts[n])):
            part = slice(int(starts[number]), int(starts[number + 1]))
            these = self.arrays["word_sentences"][part].astype(np.int64)
            until = self.arrays["word_read"][part].astype(np.int64)
            if sentences is None:
                sentences, read = these, until
                continue
            both, mine, theirs = np.intersect1d(sentences, these, True, True)
            sentences, read = both, np.maximum(read[mine], until[theirs])
        return np.zeros(0, np.int64) if sentences is None else sentences, read
