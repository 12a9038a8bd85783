"""Two scans memory by memory: what moved between checkpoints.

Of two scans of one shape every cell is compared with itself: the triggers they share, the tokens at
both ends of their values, how often they fire by one threshold per layer, and how strongly. Only
what lies in the stores is read, unless the directions of keys and values are asked for: then both
models are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ffmem.analyses.drift.matching import (
    Floats,
    Ints,
    Matching,
    is_one_text,
    match_memories,
    promoted_texts,
    trigger_places,
)
from ffmem.analyses.drift.record import LayerDrift, MemoryComparison, MemoryDrift
from ffmem.errors import StoreError
from ffmem.scan.settings import UNIT
from ffmem.store.parquet_tables import end_column, read_column
from ffmem.store.scan_store import ScanStore, common_thresholds
from ffmem.store.search.lookup import MemoryIndex

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel

_CHUNK = 4096  # memories at a time


@dataclass(frozen=True, eq=False)
class Drift:
    """Every cell of two scans of one shape [cell].

    `rates` and `means` are [scan, cell]: how often a cell fires, by the higher of its layer's two
    thresholds, and its mean coefficient over all prefixes, where one that is not positive is 0.
    """

    before: MemoryIndex
    after: MemoryIndex
    triggers: Floats | None
    value: Floats
    rates: Floats
    means: Floats
    key: Floats | None = None

    @cached_property
    def fires(self) -> Floats:
        """The distance of the rates."""
        return _relative_distance(self.rates)

    @cached_property
    def strength(self) -> Floats:
        """The distance of the mean coefficients."""
        return _relative_distance(self.means)

    @cached_property
    def drift(self) -> Floats:
        """The mean of the distances."""
        parts = [self.value, self.fires, self.strength, self.triggers, self.key]
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
                strength=mean(self.strength, layer),
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
        numbers = [self.value, self.fires, self.strength, *self.rates, *self.means]
        tokens = [promoted_texts(index, rows) for index in (self.before, self.after)]
        optional = [
            [None] * len(rows) if column is None else column[rows].tolist()
            for column in (self.key, self.triggers)
        ]
        columns: list[list[Any]] = [self.drift[rows].tolist(), *optional]
        columns += [*(column[rows].tolist() for column in numbers), *tokens]
        cells = self.before.store.cells.addresses(rows)
        return tuple(
            MemoryDrift(str(cell), *fields) for cell, *fields in zip(cells, *columns, strict=True)
        )


def _is_one_shape(one: ScanStore, other: ScanStore) -> bool:
    """Whether every cell of one scan has the same address in the other, and tokens are the same."""
    return one.cells == other.cells and np.array_equal(
        read_column(one, "vocabulary", "text"), read_column(other, "vocabulary", "text")
    )


def memory_drift(
    before: ScanStore, after: ScanStore, cosines: tuple[Floats, Floats] | None = None
) -> Drift:
    """Compare every cell of two scans of one shape with itself.

    `cosines` are those of keys and of values [memory], where the weights were read.
    """
    if not _is_one_shape(before, after):
        raise StoreError(
            f"{before.folder.root} and {after.folder.root} are not of one shape and vocabulary, so "
            "their memories cannot be compared one by one; match them by triggers with --match"
        )
    stores = (before, after)
    bars = common_thresholds(stores)
    fires = [
        np.concatenate([one.fires_above(layer, bar) for layer, bar in bars.items()])
        for one in stores
    ]
    memories, _ = before.cells.memories_of(np.arange(before.cells.count))
    key, value = (None, _logit_cosines(before, after)) if cosines is None else cosines
    return Drift(
        MemoryIndex.at_once(before),
        MemoryIndex.at_once(after),
        _trigger_distance(before, after) if is_one_text(before, after) else None,
        _angle_distance(value)[memories],
        _per_prefix(stores, fires),
        _per_prefix(stores, [np.asarray(one.array("totals")) * UNIT for one in stores]),
        None if key is None else _angle_distance(key)[memories],
    )


def _weight_drift(
    before: ScanStore, after: ScanStore, models: tuple[LanguageModel, LanguageModel]
) -> Drift:
    """The same with the angles of keys and values, from the two models."""
    from ffmem.memories.folded_weights import model_cosines  # here: torch imports slowly

    keys, values = model_cosines(*models, before.memories)
    return memory_drift(before, after, (keys.double().numpy(), values.double().numpy()))


def _per_prefix(stores: Sequence[ScanStore], sums: Sequence[NDArray[Any]]) -> Floats:
    """Sums over the prefixes of scans as means [scan, cell]."""
    prefixes = [max(one.manifest.counts["prefixes"], 1) for one in stores]
    return np.stack([one / count for one, count in zip(sums, prefixes, strict=True)])


def _relative_distance(both: Floats) -> Floats:
    """The difference of two numbers that are not negative over their sum; 0 of nothing."""
    total = both.sum(axis=0)
    return np.asarray(np.abs(both[0] - both[1]) / np.where(total > 0, total, 1))


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
    for first in range(0, len(products), _CHUNK):
        part = slice(first, first + _CHUNK)
        same = tokens[0][part, :, None] == tokens[1][part, None, :]
        products[part] = np.einsum("mij,mi,mj->m", same, logits[0][part], logits[1][part])
    lengths = [np.linalg.norm(one, axis=1) for one in logits]
    return np.asarray(products / np.maximum(lengths[0] * lengths[1], 1e-30))


def _both_ends(store: ScanStore, *names: str) -> NDArray[Any]:
    """Columns of the table of values [memory, rank], one behind the other."""
    return np.concatenate([end_column(store, name) for name in names], axis=1)


def compare_memories(
    one: ScanStore,
    other: ScanStore,
    match: bool = False,
    models: Callable[[], tuple[LanguageModel, LanguageModel]] | None = None,
) -> Drift | Matching:
    """Every cell beside itself, or with `match` and where shapes differ its best match.

    `models` are loaded for the directions of keys and values.
    """
    alike = _is_one_shape(one, other)
    if match or not (models or alike):
        return match_memories(one, other)
    if models is None or not alike:
        return memory_drift(one, other)
    return _weight_drift(one, other, models())


def comparison_rows(
    found: Drift | Matching, names: tuple[str, str], layer: int | None, rows: slice
) -> MemoryComparison:
    """Some rows of all cells or of a layer's: those that moved most, or match best, first."""
    if layer is not None:
        (found.before if isinstance(found, Drift) else found.one).store.cells.check_layer(layer)
    order = found.order(layer)
    head = (*names, len(order), rows.start)
    if isinstance(found, Drift):
        return MemoryComparison(*head, found.layers, found.table(order[rows]), (), None, None)
    return MemoryComparison(*head, (), (), found.table(order[rows]), found.share, found.bar)
