"""Which memories of two models correspond: those that the same places of a text trigger.

The control deals the other model's triggers out at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.analyses.drift.record import MemoryMatch
from ffmem.errors import StoreError
from ffmem.store.kept_sentences import flat_indices, starts_of
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.index import word_spans
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.slots import TRIGGERS_SHOWN

MOST_SHARED = 500  # cells that a place may trigger; one that triggers more tells little
CONTROL_SHARE = 0.95  # share of the control's scores that a match must exceed
SHIFT = 24  # bits for where in a sentence a place is
TOKENS = 5  # of a value that are shown
SAME_TEXT = ("digest", "column", "split", "splitter", "drop_headings", "wikitext_detok")
_CHUNK = 4096  # cells at a time
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matching:
    """The best match of every cell [cell]; -1 and a score of 0 where no place is shared."""

    one: MemoryIndex
    other: MemoryIndex
    best: Ints
    score: Floats
    control: Floats
    mutual: NDArray[np.bool_] = field(repr=False)

    @property
    def bar(self) -> float:
        """The score that chance rarely exceeds."""
        alive = self.control[self.alive]
        return float(np.quantile(alive, CONTROL_SHARE)) if len(alive) else 0.0

    @property
    def alive(self) -> NDArray[np.bool_]:
        """The cells that have any trigger."""
        return np.asarray(self.one.statistic("largest") > 0)

    @property
    def share(self) -> float:
        """The share of live cells whose match is better than chance gives."""
        above = self.score[self.alive] > self.bar
        return float(above.mean()) if len(above) else 0.0

    def order(self, layer: int | None = None) -> Ints:
        """The rows of cells with a match, or of a layer's, the best first."""
        cells = self.one.store.cells
        part = slice(0, cells.count) if layer is None else cells.rows_of(layer)
        rows = part.start + np.argsort(-self.score[part], kind="stable")
        return rows[self.best[rows] >= 0]

    def table(self, rows: Ints) -> tuple[MemoryMatch, ...]:
        """Some cells with their matches as a person reads them."""
        others = self.best[rows]
        columns: list[list[Any]] = [
            [str(cell) for cell in self.other.store.cells.addresses(others)],
            *(column[rows].tolist() for column in (self.score, self.control, self.mutual)),
            promoted_texts(self.one, rows),
            promoted_texts(self.other, others),
        ]
        cells = self.one.store.cells.addresses(rows)
        return tuple(
            MemoryMatch(str(cell), *fields) for cell, *fields in zip(cells, *columns, strict=True)
        )


@dataclass(frozen=True)
class TriggerPlaces:
    """Cells and the places of the text that trigger them, one entry per trigger."""

    cell: Ints
    place: Ints
    cells: int

    def shuffle(self, seed: int) -> TriggerPlaces:
        """The same places dealt out to cells at random; each cell keeps how many it has."""
        order = np.random.default_rng(seed).permutation(len(self.place))
        return TriggerPlaces(self.cell, self.place[order], self.cells)


def trigger_places(store: ScanStore, by_word: bool) -> TriggerPlaces:
    """The strongest triggers of every cell: sentence and last character read, or last word."""
    slots, kept = store.slots(slice(None), top=TRIGGERS_SHOWN), store.sentences
    end = np.asarray(kept.token_ends)[np.asarray(kept.starts)[slots.sentence] + slots.position - 1]
    within = _last_words(store, slots.sentence, end) if by_word else end.astype(np.int64)
    place = (slots.number.astype(np.int64) << SHIFT) + within
    if not by_word:
        return TriggerPlaces(slots.cell, place, store.cells.count)
    once = np.unique(np.stack([slots.cell, place]), axis=1)  # two tokens can end in one word
    return TriggerPlaces(once[0], once[1], store.cells.count)


def _last_words(store: ScanStore, rows: Ints, end: NDArray[np.int32]) -> Ints:
    """How many words of each sentence have begun before some of its characters."""
    kept = store.sentences
    text, boundaries = np.asarray(kept.text), np.asarray(kept.text_starts)
    starts, _ = word_spans(text, boundaries)
    owner = np.searchsorted(boundaries, starts, side="right") - 1
    letters = starts_of((text & 0xC0) != 0x80)
    begin = letters[starts] - letters[boundaries[owner]]
    step = int(np.asarray(kept.token_ends).max(initial=0)) + 2
    words = np.searchsorted(owner * step + begin, rows * step + end)
    return np.asarray(words - np.searchsorted(owner, rows))


def match_memories(one: ScanStore, other: ScanStore) -> Matching:
    """The best match of every cell among those of another model, scanned on the same text."""
    if not is_one_text(one, other):
        raise StoreError(
            f"{one.folder.root} and {other.folder.root} are scans of different texts, so their "
            "triggers cannot be compared; scan both models on one text, in a file of one name"
        )
    by_word = one.manifest.key.model["tokenizer"] != other.manifest.key.model["tokenizer"]
    mine, theirs = trigger_places(one, by_word), trigger_places(other, by_word)
    best, score = best_matches(mine, theirs)
    back, _ = best_matches(theirs, mine)
    _, control = best_matches(mine, theirs.shuffle(seed=0))
    mutual = (best >= 0) & (back[best] == np.arange(mine.cells))
    indexes = MemoryIndex.at_once(one), MemoryIndex.at_once(other)
    return Matching(*indexes, best, score, control, mutual)


def best_matches(mine: TriggerPlaces, theirs: TriggerPlaces) -> tuple[Ints, Floats]:
    """For every cell the one of others with the largest cosine of weighted places, and it."""
    places = np.union1d(mine.place, theirs.place)
    at = [np.searchsorted(places, one.place) for one in (mine, theirs)]
    counts = [np.bincount(one, minlength=len(places)) for one in at]
    weight = np.log1p((mine.cells + theirs.cells) / np.maximum(counts[0] + counts[1], 1))
    weight = np.where(np.maximum(*counts) > MOST_SHARED, 0.0, weight)
    lengths = [
        np.sqrt(np.bincount(side.cell, weight[where], side.cells))
        for side, where in zip((mine, theirs), at, strict=True)
    ]
    order = np.argsort(at[1], kind="stable")
    found = (theirs.cell[order], starts_of(counts[1]))
    best, score = np.full(mine.cells, -1), np.zeros(mine.cells)
    for part in _cell_chunks(mine.cell, mine.cells):
        some = weight[at[0][part]] > 0
        cell, place = mine.cell[part][some], at[0][part][some]
        rows, others, sums = _shared_weight((cell, place), found, weight)
        numbers = sums / np.maximum(lengths[0][rows] * lengths[1][others], 1e-30)
        ranked = np.lexsort((others, -numbers, rows))
        first = ranked[np.flatnonzero(np.diff(rows[ranked], prepend=-1))]
        best[rows[first]], score[rows[first]] = others[first], numbers[first]
    return best, score


def _cell_chunks(cell: Ints, cells: int) -> Iterator[slice]:
    """Stretches of entries, each of some whole cells; entries stand in order of cells."""
    edges = np.searchsorted(cell, np.arange(0, cells + _CHUNK, _CHUNK))
    for start, stop in zip(edges, edges[1:], strict=False):
        yield slice(int(start), int(stop))


def _shared_weight(
    entries: tuple[Ints, Ints], found: tuple[Ints, Ints], weight: Floats
) -> tuple[Ints, Ints, Floats]:
    """Pairs of cells that share a place, and the weight of all they share."""
    (cell, place), (others, starts) = entries, found
    sizes = starts[place + 1] - starts[place]
    where = flat_indices(starts[place], sizes)
    count = int(others.max(initial=0)) + 1
    pairs, which = np.unique(np.repeat(cell, sizes) * count + others[where], return_inverse=True)
    sums = np.bincount(which, np.repeat(weight[place], sizes), len(pairs))
    return pairs // count, pairs % count, np.asarray(sums, dtype=np.float64)


def promoted_texts(index: MemoryIndex, rows: Ints) -> list[tuple[str, ...]]:
    """The first tokens that the values of some cells promote; makes no arrays for that."""
    if index.index is not None:
        return [tuple(texts) for texts in index.top_texts(rows, TOKENS)]
    cells = index.store.cells.addresses(rows)
    return [tuple(one.text for one in index.value_tokens(cell, count=TOKENS)) for cell in cells]


def is_one_text(one: ScanStore, other: ScanStore) -> bool:
    """Whether sentences have the same numbers in both scans."""
    mine, theirs = one.manifest.key.corpus, other.manifest.key.corpus
    return all(mine.get(name) == theirs.get(name) for name in SAME_TEXT)
