"""Two scans memory by memory: what moved between checkpoints, and which memories correspond.

Of two scans of one shape every cell is compared with itself: the triggers they share, the tokens at
both ends of their values, how often they fire. Cells of different models are matched by the places
of the same text that trigger them, beside the same matching with the other model's triggers dealt
out at random. Only what lies in the stores is read, unless the directions of keys and values are
asked for: then both models are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ffmem.errors import StoreError
from ffmem.store.kept_sentences import flat_indices, starts_of
from ffmem.store.parquet_tables import end_column, read_column
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.index import word_spans
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.slots import TRIGGERS_SHOWN

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel

SAME_TEXT = ("digest", "column", "split", "splitter", "drop_headings", "wikitext_detok")
MOST_SHARED = 500  # cells that a place may trigger; one that triggers more tells little
CHUNK = 4096  # cells, or memories, at a time
CONTROL_SHARE = 0.95  # share of the control's scores that a match must exceed
SHIFT = 24  # bits for where in a sentence a place is
TOKENS = 5  # of a value that are shown
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MemoryDrift:
    """One cell in two scans: distances from 0 (as it was) to 1, and what they come from."""

    address: str
    drift: float  # mean of those that are known
    key: float | None  # 1 - cosine of the keys, halved; None where the weights were not read
    triggers: float | None  # 1 - triggers in common; None where the texts are not the same
    value: float  # 1 - cosine of the values, or of the logits at both their ends, halved
    fires: float  # difference of the rates over their sum
    rate_before: float
    rate_after: float
    promotes_before: tuple[str, ...]
    promotes_after: tuple[str, ...]


@dataclass(frozen=True)
class LayerDrift:
    """The mean distances of one layer's cells."""

    layer: int
    drift: float
    key: float | None
    triggers: float | None
    value: float
    fires: float


@dataclass(frozen=True, eq=False)
class Drift:
    """Every cell of two scans of one shape [cell]."""

    before: MemoryIndex
    after: MemoryIndex
    triggers: Floats | None
    value: Floats
    fires: Floats
    key: Floats | None = None

    @cached_property
    def drift(self) -> Floats:
        """The mean of the distances."""
        parts = [self.value, self.fires, self.triggers, self.key]
        return np.asarray(np.mean([part for part in parts if part is not None], axis=0))

    @cached_property
    def layers(self) -> tuple[LayerDrift, ...]:
        """The means of every layer."""
        cells = self.before.store.cells

        def mean(column: Floats, layer: int) -> float:
            return float(column[cells.rows_of(layer)].mean())

        def mean_or_none(column: Floats | None, layer: int) -> float | None:
            return None if column is None else mean(column, layer)

        return tuple(
            LayerDrift(
                layer=layer,
                drift=mean(self.drift, layer),
                key=mean_or_none(self.key, layer),
                triggers=mean_or_none(self.triggers, layer),
                value=mean(self.value, layer),
                fires=mean(self.fires, layer),
            )
            for layer in self.before.store.memories
        )

    def order(self, layer: int | None = None) -> Ints:
        """The rows of all cells, or of a layer's, those that moved most first."""
        cells = self.before.store.cells
        part = slice(0, cells.count) if layer is None else cells.rows_of(layer)
        return part.start + np.argsort(-self.drift[part], kind="stable")

    def table(self, rows: Ints) -> tuple[MemoryDrift, ...]:
        """Some cells as a person reads them."""
        rates = [index.statistic("fire_rate")[rows].tolist() for index in (self.before, self.after)]
        tokens = [_promoted_texts(index, rows) for index in (self.before, self.after)]
        optional = [
            [None] * len(rows) if column is None else column[rows].tolist()
            for column in (self.key, self.triggers)
        ]
        columns: list[list[Any]] = [self.drift[rows].tolist(), *optional]
        columns += [self.value[rows].tolist(), self.fires[rows].tolist(), *rates, *tokens]
        cells = self.before.store.cells.addresses(rows)
        return tuple(
            MemoryDrift(str(cell), *fields) for cell, *fields in zip(cells, *columns, strict=True)
        )


@dataclass(frozen=True)
class MemoryMatch:
    """A cell and the one of the other model that is triggered by the most of the same places."""

    address: str
    match: str
    score: float  # cosine of the two sets of places, rare places counting more
    control: float  # the best score that chance gives this cell
    mutual: bool  # whether each is the other's best
    promotes: tuple[str, ...]
    match_promotes: tuple[str, ...]


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
            _promoted_texts(self.one, rows),
            _promoted_texts(self.other, others),
        ]
        cells = self.one.store.cells.addresses(rows)
        return tuple(
            MemoryMatch(str(cell), *fields) for cell, *fields in zip(cells, *columns, strict=True)
        )


def _promoted_texts(index: MemoryIndex, rows: Ints) -> list[tuple[str, ...]]:
    """The first tokens that the values of some cells promote; makes no arrays for that."""
    if index.index is not None:
        return [tuple(texts) for texts in index.top_texts(rows, TOKENS)]
    cells = index.store.cells.addresses(rows)
    return [tuple(one.text for one in index.value_tokens(cell, count=TOKENS)) for cell in cells]


def is_one_shape(one: ScanStore, other: ScanStore) -> bool:
    """Whether every cell of one scan has the same address in the other, and tokens are the same."""
    return one.cells == other.cells and np.array_equal(
        read_column(one, "vocabulary", "text"), read_column(other, "vocabulary", "text")
    )


def _is_one_text(one: ScanStore, other: ScanStore) -> bool:
    """Whether sentences have the same numbers in both scans."""
    mine, theirs = one.manifest.key.corpus, other.manifest.key.corpus
    return all(mine.get(name) == theirs.get(name) for name in SAME_TEXT)


def memory_drift(
    before: ScanStore, after: ScanStore, cosines: tuple[Floats, Floats] | None = None
) -> Drift:
    """Compare every cell of two scans of one shape with itself.

    `cosines` are those of keys and of values [memory], where the weights were read.
    """
    if not is_one_shape(before, after):
        raise StoreError(
            f"{before.folder.root} and {after.folder.root} are not of one shape and vocabulary, so "
            "their memories cannot be compared one by one; match them by triggers with --match"
        )
    rates = [
        np.asarray(store.array("fires")) / max(store.manifest.counts["prefixes"], 1)
        for store in (before, after)
    ]
    total = rates[0] + rates[1]
    fires = np.abs(rates[0] - rates[1]) / np.where(total > 0, total, 1)
    memories, _ = before.cells.memories_of(np.arange(before.cells.count))
    key, value = (None, _logit_cosines(before, after)) if cosines is None else cosines
    return Drift(
        MemoryIndex.at_once(before),
        MemoryIndex.at_once(after),
        _trigger_distance(before, after) if _is_one_text(before, after) else None,
        _angle_distance(value)[memories],
        fires,
        None if key is None else _angle_distance(key)[memories],
    )


def weight_drift(
    before: ScanStore, after: ScanStore, models: tuple[LanguageModel, LanguageModel]
) -> Drift:
    """The same with the angles of keys and values, from the two models."""
    from ffmem.memories.folded_weights import model_cosines  # here: torch imports slowly

    keys, values = model_cosines(*models, before.memories)
    return memory_drift(before, after, (keys.double().numpy(), values.double().numpy()))


def _angle_distance(cosine: Floats) -> Floats:
    """From 0 for the same direction to 1 for the opposite one."""
    return np.asarray(np.clip((1 - cosine) / 2, 0, 1))


def _trigger_distance(before: ScanStore, after: ScanStore) -> Floats:
    """1 - (places that trigger a cell in both scans / in either); 0 where nothing triggers it."""
    mine, theirs = trigger_places(before, by_word=False), trigger_places(after, by_word=False)
    both, count = np.union1d(mine.place, theirs.place), before.cells.count
    places = max(len(both), 1)
    one, other = (side.cell * places + np.searchsorted(both, side.place) for side in (mine, theirs))
    shared = np.bincount(np.intersect1d(one, other) // places, minlength=count)
    either = np.bincount(np.union1d(one, other) // places, minlength=count)
    return 1 - np.where(either > 0, shared / np.maximum(either, 1), 1.0)


def _logit_cosines(before: ScanStore, after: ScanStore) -> Floats:
    """[memory]: the cosine of the logits at both ends of the value."""
    tokens = [_both_ends(store, "promoted", "suppressed") for store in (before, after)]
    logits = [
        _both_ends(store, "promoted_logits", "suppressed_logits") for store in (before, after)
    ]
    products = np.empty(len(tokens[0]))
    for first in range(0, len(products), CHUNK):
        part = slice(first, first + CHUNK)
        same = tokens[0][part, :, None] == tokens[1][part, None, :]
        products[part] = np.einsum("mij,mi,mj->m", same, logits[0][part], logits[1][part])
    lengths = [np.linalg.norm(one, axis=1) for one in logits]
    return np.asarray(products / np.maximum(lengths[0] * lengths[1], 1e-30))


def _both_ends(store: ScanStore, *names: str) -> NDArray[Any]:
    """Columns of the table of values [memory, rank], one behind the other."""
    return np.concatenate([end_column(store, name) for name in names], axis=1)


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


def match_memories(one: ScanStore, other: ScanStore, seed: int = 0) -> Matching:
    """The best match of every cell among those of another model, scanned on the same text."""
    if not _is_one_text(one, other):
        raise StoreError(
            f"{one.folder.root} and {other.folder.root} are scans of different texts, so their "
            "triggers cannot be compared; scan both models on one text, in a file of one name"
        )
    by_word = one.manifest.key.model["tokenizer"] != other.manifest.key.model["tokenizer"]
    mine, theirs = trigger_places(one, by_word), trigger_places(other, by_word)
    best, score = best_matches(mine, theirs)
    back, _ = best_matches(theirs, mine)
    _, control = best_matches(mine, theirs.shuffle(seed))
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
    edges = np.searchsorted(cell, np.arange(0, cells + CHUNK, CHUNK))
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
