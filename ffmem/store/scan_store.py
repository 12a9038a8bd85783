"""A finished scan on disk: one memory's page in milliseconds, whatever the store's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.errors import AddressError, StoreError
from ffmem.files.disk_cache import fetch_folder
from ffmem.locations import first_line, is_remote, location
from ffmem.scan.histograms import COLUMNS, Histogram, cell_histogram, counts_above
from ffmem.scan.settings import ALL, UNIT
from ffmem.store.bit_rows import BitRows
from ffmem.store.cells import Cells, sign_factor
from ffmem.store.folder import StudyFolder, check_files, foreign
from ffmem.store.kept_sentences import ARRAYS, KeptSentences
from ffmem.store.manifest import Manifest, read_manifest
from ffmem.store.slots import SlotKind, Slots, TriggerList
from ffmem.store.verification import refuse_damage

SLOTS = ("coefficients", "sentences", "positions")  # the arrays of triggers and of the sample
# What numpy raises at a broken header, and code at an array that says what it cannot.
UNREADABLE = (OSError, ValueError, EOFError, TypeError, ArithmeticError, SyntaxError, TokenError)
READ_AT_OPENING = 8 << 20  # bytes of the smallest files, which takes about 10 ms


@dataclass(frozen=True)
class ExpertCounts:
    """How often the router chose an expert over the whole corpus, and how its memories fired."""

    routed: int  # prefixes
    mean_weight: float  # over them
    fire_rate: float = 0.0  # of those prefixes, the share on which one of its memories fires: mean


@dataclass(frozen=True)
class Counts:
    """How often and how strongly a memory fired over the whole corpus.

    If the layer has a firing threshold: also that, and how often the coefficient is above 0.
    """

    fires: int
    prefixes: int
    mean: float  # over the prefixes with a coefficient above 0
    largest: float
    expert: ExpertCounts | None = None  # in a mixture of experts
    threshold: float | None = None
    positive: int | None = None


@dataclass(frozen=True)
class ScanStore:
    """One scan. Arrays are memory-mapped: opening reads the manifest and the smallest files."""

    folder: StudyFolder
    manifest: Manifest
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        counts = self.manifest.counts
        return (
            f"<ScanStore {self.folder.root}: {self.manifest.key.model['name']}, "
            f"{sum(self.memories.values()):,} memories in {len(self.memories)} layers, "
            f"{counts['sentences']:,} sentences, {counts['tokens']:,} tokens>"
        )

    @classmethod
    def open(cls, path: str | Path) -> ScanStore:
        """Open the scan in a folder; refuses one that is unfinished, damaged or newer.

        A store at a URL is first copied to this machine, once.
        """
        folder = StudyFolder(location(path))
        manifest = read_manifest(folder)
        if is_remote(folder.root):
            folder = StudyFolder(fetch_folder(folder.root, folder.manifest.read_bytes()))
        check_files(folder)
        store = cls(folder, manifest)
        refuse_damage(store, most=READ_AT_OPENING)
        _check_shapes(store)
        return store

    def array(self, name: str) -> NDArray[Any]:
        """One of the store's arrays, memory-mapped; rows are cells."""
        if name not in self._arrays:
            try:
                self._arrays[name] = self._open(name)
            except UNREADABLE as error:
                path = self.folder.array(name)
                raise StoreError(
                    f"{path} cannot be read ({first_line(error)}); "
                    f"{self.folder.remedy_for(path, error)}"
                ) from None
        return self._arrays[name]

    def _open(self, name: str) -> NDArray[Any]:
        mapped = np.load(self.folder.array(name), mmap_mode="r").view(np.ndarray)  # quicker so
        if mapped.dtype != np.uint8 or name == "sentence_text":
            return mapped
        return cast(NDArray[Any], BitRows(mapped))  # which is read like an array

    @cached_property
    def cells(self) -> Cells:
        """The cells of the scan and their rows."""
        return Cells(tuple(self.manifest.layers), self.manifest.signed, self.manifest.mixtures)

    @property
    def memories(self) -> dict[int, int]:
        """Memories of every layer in the scan, by its number."""
        return self.cells.memories

    @cached_property
    def sentences(self) -> KeptSentences:
        """The sentences that contain triggers."""
        return KeptSentences(*(self.array(f"sentence_{name}") for name in ARRAYS))

    def slots(
        self,
        rows: slice | Sequence[int] | NDArray[Any],
        kind: SlotKind = "trigger",
        top: int | None = None,
    ) -> Slots:
        """The filled slots of the cells in some rows, or of the first `top` slots of each."""
        return Slots(self, rows, kind, top)

    def triggers(self, cell: Address, kind: SlotKind = "trigger") -> TriggerList:
        """A cell's triggers, strongest first; with `kind="sample"` its random sample."""
        row = self.cells.row(cell)
        slots = self.slots(slice(row, row + 1), kind)
        return TriggerList(slots, self.router_weights(cell) if kind == "trigger" else None)

    def router_weights(self, cell: Address) -> NDArray[np.float16] | None:
        """The router's weight at each trigger of a routed expert's cell; None for other cells."""
        row = self.cells.mixture_row(cell) if self.has("trigger_weights") else None
        if row is None or self.cells.expert_row(cell) is None:
            return None
        return np.asarray(self.array("trigger_weights")[row])

    def mean_coefficients(self, memories: Sequence[Address]) -> list[float]:
        """The mean coefficient of whole memories over all prefixes.

        A plain scan counts positive coefficients only, a gated one those of either sign.
        """
        prefixes = max(self.manifest.counts["prefixes"], 1)
        return [
            sum(
                sign_factor(cell) * int(self.array("totals")[self.cells.row(cell)]) * UNIT
                for cell in self.cells.resolve(memory)
            )
            / prefixes
            for memory in memories
        ]

    @property
    def has_rankings(self) -> bool:
        """Whether it is known which tokens the values promote and suppress."""
        return self.manifest.has_rankings

    def has(self, name: str) -> bool:
        """Whether the scan has an optional array."""
        return name in self._array_names

    @cached_property
    def _array_names(self) -> frozenset[str]:
        here = self.folder.name(self.folder.arrays)
        paths = map(PurePosixPath, self.manifest.files)
        return frozenset(path.stem for path in paths if str(path.parent) == here)

    def histogram(self, cell: Address, triggers: TriggerList | None = None) -> Histogram:
        """The histogram of a cell's coefficients; its `triggers` are read unless given."""
        if len(self.cells.resolve(cell)) > 1:
            raise AddressError(f"{cell} is two cells; write {cell}+ or {cell}-")
        row, every = self.cells.row(cell), self.manifest.counts["sentences"] <= ALL
        known = self.triggers(cell) if triggers is None else triggers
        return cell_histogram(
            self.array("histogram")[row].astype(np.int64),
            int(self.positive_counts[row]),
            known.coefficients,
            every,
        )

    @property
    def positive_counts(self) -> NDArray[Any]:
        """How often each cell's coefficient is above 0: with ReLU, how often it fires."""
        return self.array("fires")

    @property
    def fire_counts(self) -> NDArray[Any]:
        """How often each cell fires, by `threshold`: the count that all pages show."""
        return self.array("firing" if self.has("firing") else "fires")

    def threshold(self, layer: int) -> float:
        """The coefficient above which a layer's cells fire; 0 with ReLU."""
        return float(self.array("thresholds")[list(self.memories).index(layer)])

    def fires_above(self, layer: int, bar: float) -> NDArray[Any]:
        """How often a layer's cells fire by a threshold that is not lower than its own."""
        rows = self.cells.rows_of(layer)
        if bar == self.threshold(layer):
            return np.asarray(self.fire_counts[rows])
        names = ("histogram", "fires", "largest")
        window, positive, largest = (np.asarray(self.array(name)[rows]) for name in names)
        found = counts_above(window.astype(np.int64), positive.astype(np.int64), largest, bar)
        return np.minimum(found, self.fire_counts[rows])

    def expert_counts(self, cell: Address) -> ExpertCounts | None:
        """The counts of a cell's expert; None in a dense layer and in a shared expert."""
        row = self.cells.expert_row(cell)
        if row is None:
            return None
        routed, total = (int(self.array(f"expert_{name}")[row]) for name in ("routed", "weights"))
        if not routed:
            return ExpertCounts(0, 0.0)
        size, first = self.cells.parts(cell.layer).size, replace(cell, index=0)
        rows = [self.cells.row(replace(first, sign=sign)) for sign in self.cells.signs]
        fires = sum(int(self.fire_counts[row : row + size].sum()) for row in rows)
        return ExpertCounts(routed, total * UNIT / routed, fires / (size * routed))

    def experts(self, layer: int) -> tuple[ExpertCounts, ...]:
        """The counts of every expert of a layer; empty for a dense layer."""
        cells = (
            Address(layer, 0, self.cells.signs[0], f"E{number}")
            for number in self.cells.parts(layer).expert_numbers
        )
        return tuple(filter(None, map(self.expert_counts, cells)))

    def counts(self, cell: Address) -> Counts:
        """A cell's counts over the corpus."""
        row = self.cells.row(cell)
        positive, total = int(self.positive_counts[row]), int(self.array("totals")[row])
        bar = self.threshold(cell.layer) or None
        return Counts(
            fires=int(self.fire_counts[row]),
            prefixes=self.manifest.counts["prefixes"],
            mean=total * UNIT / positive if positive else 0.0,
            largest=float(self.array("largest")[row]),
            expert=self.expert_counts(cell),
            threshold=bar,
            positive=positive if bar else None,
        )


def common_thresholds(stores: Sequence[ScanStore]) -> dict[int, float]:
    """One firing threshold per layer for several scans: the highest of theirs."""
    return {layer: max(one.threshold(layer) for one in stores) for layer in stores[0].memories}


def _check_shapes(store: ScanStore) -> None:
    """Refuse arrays whose lengths or types do not fit the manifest or one another.

    Also thresholds that are none.
    """
    for name, (shape, dtype) in _expected_shapes(store).items():
        found = store.array(name)
        if (found.shape, found.dtype.str) != (shape, dtype):
            raise StoreError(
                f"{store.folder.array(name)} is damaged (it holds {found.dtype}{found.shape} where "
                f"{np.dtype(dtype)}{shape} belongs); {store.folder.remedy}"
            )

    thresholds = store.array("thresholds")
    if not (np.isfinite(thresholds) & (thresholds >= 0)).all():
        raise foreign(store.folder, store.folder.array("thresholds"), "holds no thresholds")


def _expected_shapes(store: ScanStore) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every array, by the manifest and the number of sentences."""
    settings, cells = store.manifest.key.settings, store.cells.count
    sentences, tokens = len(store.array("sentence_numbers")), len(store.array("sentence_tokens"))
    types = {"coefficients": "<f4", "sentences": "<u4", "positions": "<u2"}
    slots = {
        f"{kind}_{name}": ((cells, settings[size]), types[name])
        for kind, size in (("trigger", "top"), ("sample", "sample"))
        for name in SLOTS
    }
    return {
        **slots,
        "histogram": ((cells, COLUMNS), _integer_type(store, "histogram")),
        "thresholds": ((len(store.memories),), "<f4"),
        **_optional_shapes(store),
        "fires": ((cells,), "<u4" if store.positive_counts.itemsize == 4 else "<i8"),
        "totals": ((cells,), "<i8"),
        "largest": ((cells,), "<f4"),
        "sentence_numbers": ((sentences,), "<i8"),
        "sentence_starts": ((sentences + 1,), "<i8"),
        "sentence_tokens": ((tokens,), "<i4"),
        "sentence_token_ends": ((tokens,), "<i4"),
        "sentence_text_starts": ((sentences + 1,), "<i8"),
        "sentence_text": (store.array("sentence_text").shape[:1], "|u1"),
    }


def _optional_shapes(store: ScanStore) -> dict[str, tuple[tuple[int, ...], str]]:
    """The same of arrays that not every scan has."""
    cells = store.cells.count
    mixed = len(store.cells.signs) * sum(store.memories[layer] for layer in store.cells.mixtures)
    shapes = {
        "firing": ((cells,), _integer_type(store, "firing")),
        "trigger_weights": ((mixed, store.manifest.key.settings["top"]), "<f2"),
    }
    return {name: shape for name, shape in shapes.items() if store.has(name)}


def _integer_type(store: ScanStore, name: str) -> str:
    """Counts are written in four bytes where they fit, and else in eight."""
    return "<u8" if store.has(name) and store.array(name).dtype.itemsize == 8 else "<u4"
