"""A finished scan on disk: one memory's page in milliseconds, whatever the store's size."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.corpus.kept_sentences import KeptSentences
from ffmem.errors import AddressError, StoreError
from ffmem.locations import fetch_folder, is_remote, location
from ffmem.scan.state.tallies import UNIT
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import Manifest, read_manifest
from ffmem.store.range_checks import (
    UNREADABLE,
    check_coefficients,
    check_counts,
    check_places,
    check_shapes,
    contradictions,
    first_line,
    refuse_damage,
)
from ffmem.store.scan_writer import NO_SENTENCE

READ_AT_OPENING = 8 << 20  # bytes of the smallest files, which takes about 10 ms


@dataclass(frozen=True)
class Trigger:
    """A prefix that fires a memory: `before` + `last` is what was read, `next` what followed."""

    coefficient: float
    sentence: int
    position: int
    before: str
    last: str
    next: str
    rest: str


@dataclass(frozen=True)
class Counts:
    """How often and how strongly a memory fired over the whole corpus."""

    fires: int
    prefixes: int
    mean: float  # over the prefixes that fired
    largest: float


@dataclass(frozen=True)
class ScanStore:
    """One scan. Arrays are memory-mapped: opening reads the manifest and the smallest files."""

    folder: StudyFolder
    manifest: Manifest
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> ScanStore:
        """Open the scan in a folder; refuses one that is unfinished, damaged or newer.

        One behind a URL is copied to this machine first, once.
        """
        folder = StudyFolder(location(path))
        manifest = read_manifest(folder)
        if is_remote(folder.root):
            folder = StudyFolder(fetch_folder(folder.root, folder.manifest.read_bytes()))
        store = cls(folder, manifest)
        refuse_damage(store, most=READ_AT_OPENING)
        check_shapes(store)
        return store

    def array(self, name: str) -> NDArray[Any]:
        """One of the store's arrays, memory-mapped; rows are cells."""
        if name not in self._arrays:
            try:
                mapped = np.load(self.folder.array(name), mmap_mode="r")
                self._arrays[name] = mapped.view(np.ndarray)  # the same bytes, quicker to index
            except UNREADABLE as error:
                raise StoreError(
                    f"{self.folder.array(name)} cannot be read ({first_line(error)}); "
                    f"{self.folder.remedy}"
                ) from None
        return self._arrays[name]

    @cached_property
    def _first_rows(self) -> dict[int, int]:
        """Row of each layer's first cell."""
        rows, row = {}, 0
        for number, memories in self.manifest.layers:
            rows[number] = row
            row += memories * (2 if self.manifest.signed else 1)
        return rows

    @cached_property
    def memories(self) -> dict[int, int]:
        """Memories of every layer in the scan, by its number."""
        return dict(self.manifest.layers)

    @cached_property
    def sentences(self) -> KeptSentences:
        """The sentences that triggers point at."""
        names = ("numbers", "starts", "tokens", "token_ends", "text_starts", "text")
        return KeptSentences(*(self.array(f"sentence_{name}") for name in names))

    def cells(self, address: Address) -> list[Address]:
        """The address itself, or both signs of a gated memory named without one."""
        if address.layer not in self.memories:
            known = ", ".join(map(str, self.memories))
            raise AddressError(f"the scan has no layer {address.layer}; its layers are {known}")
        if address.index >= self.memories[address.layer]:
            raise AddressError(
                f"the scan has no memory {address}; layer {address.layer} has memories "
                f"0 to {self.memories[address.layer] - 1}"
            )
        if address.sign and not self.manifest.signed:
            raise AddressError(
                f"{address} names one sign, but the scan's layers are not gated; "
                f"write L{address.layer}.{address.index}"
            )
        if self.manifest.signed and not address.sign:
            return [Address(address.layer, address.index, sign) for sign in ("+", "-")]
        return [address]

    def row(self, cell: Address) -> int:
        """The row of one cell in every array."""
        second_half = self.memories[cell.layer] if cell.sign == "-" else 0
        return self._first_rows[cell.layer] + second_half + cell.index

    def address(self, layer: int, cell: int) -> Address:
        """The address of a layer's cell by its number among the layer's cells."""
        if not self.manifest.signed:
            return Address(layer, cell)
        memories = self.memories[layer]
        return Address(layer, cell % memories, "-" if cell >= memories else "+")

    def triggers(self, cell: Address, kind: str = "trigger") -> list[Trigger]:
        """A cell's triggers, strongest first; with `kind="sample"` its random sample."""
        return self._slots(cell, kind, None)[0]

    def strongest(self, cell: Address, count: int) -> tuple[list[Trigger], int]:
        """A cell's first triggers, and how many are stored."""
        return self._slots(cell, "trigger", count)

    def _slots(self, cell: Address, kind: str, count: int | None) -> tuple[list[Trigger], int]:
        row = self.row(cell)
        sentences = self.array(f"{kind}_sentences")[row]
        coefficients = self.array(f"{kind}_coefficients")[row]
        positions = self.array(f"{kind}_positions")[row]
        filled = np.flatnonzero(sentences != NO_SENTENCE)
        first = filled[:count]
        with contradictions(self, kind):
            check_coefficients(coefficients[filled], in_order=kind == "trigger")
            rows = self.sentences.rows(sentences[first])
            check_places(self.sentences, rows, positions[first])
            found = [
                Trigger(coefficient, sentence, position, *self.sentences.around(row, position))
                for row, coefficient, sentence, position in zip(
                    rows.tolist(),
                    coefficients[first].tolist(),
                    sentences[first].tolist(),
                    positions[first].tolist(),
                    strict=True,
                )
            ]
        return found, len(filled)

    def counts(self, cell: Address) -> Counts:
        """A cell's counts over the corpus."""
        row = self.row(cell)
        fires, total = int(self.array("fires")[row]), int(self.array("totals")[row])
        found = Counts(
            fires=fires,
            prefixes=self.manifest.counts["prefixes"],
            mean=total * UNIT / fires if fires else 0.0,
            largest=float(self.array("largest")[row]),
        )
        with contradictions(self, "tally"):
            check_counts(fires, found.largest, found.prefixes)
        return found
