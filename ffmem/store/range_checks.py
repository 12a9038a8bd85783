"""Checks of a scan's files without digests: lengths, ranges and orders that a damaged one breaks.

Opening looks at lengths; what a page reads is looked at then. `range_damage` looks at everything,
for scans that were written before files had digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.kept_sentences import ARRAYS, KeptSentences, flat_indices
from ffmem.errors import StoreError
from ffmem.locations import for_arrow
from ffmem.scan.histograms import COLUMNS
from ffmem.store.digests import first_wrong

if TYPE_CHECKING:
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.slots import SlotKind

# What numpy raises at a broken header, and code at an array that says what it cannot.
UNREADABLE = (OSError, ValueError, EOFError, TypeError, ArithmeticError, SyntaxError, TokenError)
EVERYTHING = 1 << 62  # bytes
CELLS = 1 << 15  # looked at together
SLOTS = ("coefficients", "sentences", "positions")
TALLIES = ("fires", "totals", "largest")
TABLES = ("values", "endings", "vocabulary")
FILES = {
    "trigger": tuple(f"trigger_{name}" for name in SLOTS),
    "sample": tuple(f"sample_{name}" for name in SLOTS),
    "slot": tuple(f"{kind}_{name}" for kind in ("trigger", "sample") for name in SLOTS),
    "tally": TALLIES,
    "kept": tuple(f"sentence_{name}" for name in ARRAYS),
}


def refuse_damage(store: ScanStore, most: int = EVERYTHING) -> None:
    """Refuse a scan whose files are not as they were written; reads `most` bytes of them."""
    wrong = first_wrong(store.folder.root, store.manifest.files, most)
    if wrong is not None:
        name, what = wrong
        raise StoreError(f"{store.folder.root / name} {what}; {store.folder.remedy}")


@contextmanager
def contradictions(store: ScanStore, kind: str) -> Iterator[None]:
    """Turn what contradictory arrays raise into one sentence about the one that is damaged."""
    try:
        yield
    except (*UNREADABLE, LookupError) as error:
        refuse_damage(store)  # a digest knows which of them it is
        names = FILES[kind] if kind == "tally" else (*FILES[kind], *FILES["kept"])
        raise StoreError(
            f"{store.folder.arrays}: one of {', '.join(names)} is damaged "
            f"({first_line(error)}); {store.folder.remedy}"
        ) from None


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_shapes(store: ScanStore) -> None:
    """Refuse arrays whose lengths or types do not fit the manifest or one another."""
    for name, (shape, dtype) in expected_shapes(store).items():
        found = store.array(name)
        if (found.shape, found.dtype.str) != (shape, dtype):
            raise StoreError(
                f"{store.folder.array(name)} is damaged (it holds {found.dtype}{found.shape} where "
                f"{np.dtype(dtype)}{shape} belongs); {store.folder.remedy}"
            )


def expected_shapes(store: ScanStore) -> dict[str, tuple[tuple[int, ...], str]]:
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
        **optional_shapes(store),
        "fires": ((cells,), "<u4" if store.array("fires").itemsize == 4 else "<i8"),
        "totals": ((cells,), "<i8"),
        "largest": ((cells,), "<f4"),
        "sentence_numbers": ((sentences,), "<i8"),
        "sentence_starts": ((sentences + 1,), "<i8"),
        "sentence_tokens": ((tokens,), "<i4"),
        "sentence_token_ends": ((tokens,), "<i4"),
        "sentence_text_starts": ((sentences + 1,), "<i8"),
        "sentence_text": (store.array("sentence_text").shape[:1], "|u1"),
    }


def optional_shapes(store: ScanStore) -> dict[str, tuple[tuple[int, ...], str]]:
    """The same of arrays that scans of earlier versions do not have."""
    cells = store.cells.count
    mixed = len(store.cells.signs) * sum(store.memories[layer] for layer in store.cells.mixtures)
    shapes = {
        "histogram": ((cells, COLUMNS), integer_type(store, "histogram")),
        "firing": ((cells,), integer_type(store, "firing")),
        "thresholds": ((len(store.memories),), "<f4"),
        "trigger_weights": ((mixed, store.manifest.key.settings["top"]), "<f2"),
    }
    return {name: shape for name, shape in shapes.items() if store.has(name)}


def integer_type(store: ScanStore, name: str) -> str:
    """Counts are written in four bytes where they fit, and else in eight."""
    return "<u8" if store.has(name) and store.array(name).dtype.itemsize == 8 else "<u4"


def check_coefficients(coefficients: NDArray[np.float32], in_order: bool) -> None:
    """A ValueError if a coefficient is not a number, or rows of them are not strongest first."""
    if np.isnan(coefficients).any():
        raise ValueError("a coefficient is not a number")
    if in_order and (coefficients[..., 1:] > coefficients[..., :-1]).any():
        raise ValueError("coefficients are not in order")


def check_places(kept: KeptSentences, rows: NDArray[np.int64], positions: NDArray[Any]) -> None:
    """A ValueError if a position is not in its sentence, or a sentence not in the text."""
    starts, stops = np.asarray(kept.starts[rows]), np.asarray(kept.starts[rows + 1])
    if ((starts < 0) | (starts > stops) | (stops > len(kept.tokens))).any():
        raise ValueError("a sentence has tokens that do not exist")
    if (positions > stops - starts).any():
        raise ValueError("a position is beyond the end of its sentence")
    first, last = np.asarray(kept.text_starts[rows]), np.asarray(kept.text_starts[rows + 1])
    if ((first < 0) | (first > last) | (last > len(kept.text))).any():
        raise ValueError("a sentence has text that does not exist")
    sizes = stops - starts
    ends = kept.token_ends[flat_indices(starts, sizes)]
    if ((ends < 0) | (ends > np.repeat(last - first, sizes))).any():
        raise ValueError("a token ends beyond its sentence")


def check_counts(fires: int, largest: float, prefixes: int) -> None:
    """A ValueError if a cell fired more often than there were prefixes, or at no number."""
    if not 0 <= fires <= prefixes:
        raise ValueError(f"a cell fired on {fires:,} of {prefixes:,} prefixes")
    if np.isnan(largest):
        raise ValueError("a largest coefficient is not a number")


def range_damage(store: ScanStore) -> Iterator[tuple[str, str]]:
    """Every file of a scan that says what it cannot, with the reason, as far as can be seen."""
    looks: list[tuple[str, Callable[[ScanStore], None]]] = [
        ("sentence_*", check_sentences),
        ("trigger_*", lambda store: check_slots(store, "trigger")),
        ("sample_*", lambda store: check_slots(store, "sample")),
        ("fires", check_fires),
        ("largest", check_largest),
    ]
    folder = store.folder
    for array, look in looks:
        try:
            look(store)
        except (*UNREADABLE, LookupError) as error:
            yield folder.name(folder.array(array)), f"cannot be right ({first_line(error)})"
    for name in TABLES:
        try:
            read_table(store, name)
        except (*UNREADABLE, LookupError) as error:
            yield folder.name(folder.table(name)), f"cannot be read ({first_line(error)})"


def check_sentences(store: ScanStore) -> None:
    """Sentences in order, one after the other, with text that is UTF-8."""
    kept = store.sentences
    if (np.diff(kept.numbers) <= 0).any():
        raise ValueError("sentences are not in order")
    check_places(kept, np.arange(len(kept)), np.zeros(len(kept), np.int64))
    bytes(kept.text).decode("utf-8", "surrogatepass")


def check_slots(store: ScanStore, kind: SlotKind) -> None:
    """Coefficients that are numbers, in order, at places that exist; some cells at a time."""
    for first in range(0, len(store.array("fires")), CELLS):
        slots = store.slots(slice(first, first + CELLS), kind)
        below = np.full(slots.mask.shape, -np.inf, np.float32)  # unfilled slots come last
        below[slots.mask] = slots.coefficient
        check_coefficients(below, in_order=kind == "trigger")
        check_places(store.sentences, slots.sentence, slots.position)


def check_fires(store: ScanStore) -> None:
    """No cell fired more often than there were prefixes."""
    fires = store.array("fires")
    for one in (fires.min(initial=0), fires.max(initial=0)):
        check_counts(int(one), 0.0, store.manifest.counts["prefixes"])


def check_largest(store: ScanStore) -> None:
    """Every largest coefficient is a number."""
    check_counts(0, float(store.array("largest").max(initial=0)), 0)


def read_table(store: ScanStore, name: str) -> None:
    """Read all of a table, which raises where it cannot be read."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(for_arrow(store.folder.table(name))) as file:
        file.read().validate(full=True)
