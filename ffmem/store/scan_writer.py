"""Write a finished scan: memory-mapped arrays, Parquet tables, and the manifest last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.shards import EMPTY, sentence_and_position
from ffmem.locations import for_arrow
from ffmem.scan.histograms import firing, first_firing_bin, narrow, threshold, windows
from ffmem.store.bit_rows import pack
from ffmem.store.digests import Files, write_with_digest
from ffmem.store.folder import StudyFolder
from ffmem.store.kept_sentences import ARRAYS, KeptSentences

if TYPE_CHECKING:
    from ffmem.scan.scanner import ScanState

COMPRESSION = 6  # of tables: the highest saves 3 % more and takes many times as long
NO_SENTENCE = np.iinfo(np.uint32).max  # in a slot that no trigger fills


def write_state(folder: StudyFolder, state: ScanState) -> Files:
    """Triggers and sample of all layers, in as few bits as they need, and counts of every cell.

    Rows are cells: layer by layer, within a gated layer all + cells before all - cells.
    """
    layers = [state[number] for number in sorted(state)]
    files: Files = {}
    for prefix, parts in (
        ("trigger", [layer.triggers for layer in layers]),
        ("sample", [layer.sample for layer in layers]),
    ):
        coefficients = np.concatenate([part.coefficients.cpu().numpy() for part in parts])
        places = np.concatenate([part.places.cpu().numpy() for part in parts])
        sentences, positions = _split_places(places)
        files |= write_slots(folder, prefix, coefficients.astype(np.float32), sentences, positions)
    fires, totals, largest = (
        np.concatenate([getattr(layer.tallies, name).cpu().numpy() for layer in layers])
        for name in ("fires", "totals", "largest")
    )
    files |= write_array(folder, "fires", fires if fires.max(initial=0) >> 32 else narrow(fires))
    files |= write_array(folder, "totals", totals)
    files |= write_array(folder, "largest", largest)
    for name in ("routed", "weights"):
        experts = [getattr(layer.tallies, name) for layer in layers]
        mixtures = [tensor.cpu().numpy() for tensor in experts if tensor is not None]
        if mixtures:
            files |= write_array(folder, f"expert_{name}", np.concatenate(mixtures))
    weights = [layer.triggers.weights for layer in layers if layer.tallies.routed is not None]
    there = [one.cpu().numpy() for one in weights if one is not None]
    if there:
        files |= write_rows(folder, "trigger_weights", np.concatenate(there))
    return files


def write_slots(
    folder: StudyFolder,
    kind: str,
    coefficients: NDArray[np.float32],
    sentences: NDArray[np.uint32],
    positions: NDArray[np.uint16],
) -> Files:
    """What the slots of all cells hold, each array [cell, slot]; unfilled ones have no sentence."""
    return write_together(
        [
            partial(write_rows, folder, f"{kind}_coefficients", coefficients),
            partial(write_rows, folder, f"{kind}_sentences", sentences, NO_SENTENCE),
            partial(write_rows, folder, f"{kind}_positions", positions),
        ]
    )


def write_together(writers: Sequence[Callable[[], Files]]) -> Files:
    """Write some files at the same time, in threads."""
    with ThreadPoolExecutor() as pool:
        parts = [pool.submit(write) for write in writers]
        return {name: digest for part in parts for name, digest in part.result().items()}


def write_histograms(
    folder: StudyFolder, state: ScanState, activations: Mapping[int, str], signed: bool
) -> Files:
    """Histograms of all cells, the thresholds of layers, and how often cells fire by them.

    How often cells fire is written only where it is not the count of coefficients above zero.
    """
    layers = [(state[number], activations[number]) for number in sorted(state)]
    parts, bars, counts = [], [], []
    for layer, activation in layers:
        tallies = layer.tallies
        first_bin = first_firing_bin(tallies, len(tallies.fires) // (1 + signed), activation)
        bars.append(threshold(first_bin))
        counts.append(firing(tallies, layer.triggers, first_bin))
        parts.append(windows(tallies.histogram.cpu().numpy(), tallies.largest.cpu().numpy()))
    files = write_rows(folder, "histogram", narrow(np.concatenate(parts)))
    files |= write_array(folder, "thresholds", np.array(bars, np.float32))
    if any(bars):
        files |= write_array(folder, "firing", narrow(np.concatenate(counts)))
    return files


def _split_places(places: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Sentence and position of every place in 6 bytes; unfilled slots have no sentence."""
    sentences, positions = sentence_and_position(places)
    empty = places == EMPTY
    return (
        np.where(empty, NO_SENTENCE, sentences).astype(np.uint32),
        np.where(empty, 0, positions).astype(np.uint16),
    )


def write_sentences(folder: StudyFolder, kept: KeptSentences) -> Files:
    """The sentences that triggers point at."""
    return write_together(
        [partial(write_array, folder, f"sentence_{name}", getattr(kept, name)) for name in ARRAYS]
    )


def write_array(folder: StudyFolder, name: str, array: NDArray[Any]) -> Files:
    """One array of a scan, ready to be memory-mapped."""
    return write_array_at(folder, folder.array(name), array)


def write_array_at(folder: StudyFolder, path: Path, array: NDArray[Any]) -> Files:
    """The same for any file of the folder."""

    def save(part: Path) -> None:
        with part.open("wb") as file:
            np.save(file, array)

    return write_with_digest(folder, path, save)


def write_rows(folder: StudyFolder, name: str, array: NDArray[Any], nothing: int = 0) -> Files:
    """One array [cell, item] in as few bits as its numbers need, ready to be memory-mapped."""
    return write_array(folder, name, pack(array, nothing))


def load_parquet() -> None:
    """Import the library that writes tables, which takes a while, before it is needed."""
    import pyarrow.parquet  # noqa: F401


def write_table(folder: StudyFolder, name: str, columns: Mapping[str, Any], group: int) -> Files:
    """One Parquet table; `group` rows are read at a time, so a look at a few rows is quick.

    The first bytes of all numbers stand together, then the second ones, and so on, for these are
    more alike than whole numbers.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _column(values) for name, values in columns.items()})
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    numbers = [
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
        for field in table.schema
        if field.name not in texts
    ]

    def write(part: Path) -> None:
        pq.write_table(
            table,
            for_arrow(part),
            row_group_size=group,
            compression="zstd",
            compression_level=COMPRESSION,
            use_dictionary=texts,
            column_encoding=dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
        )

    return write_with_digest(folder, folder.table(name), write)


def _column(values: Any) -> Any:
    """A table's column: rows of an array [row, item] become lists, without a look at each."""
    import pyarrow as pa

    if not isinstance(values, np.ndarray) or values.ndim == 1:
        return values
    rows, items = values.shape
    starts = np.arange(0, rows * items + 1, max(items, 1), dtype=np.int32)
    return pa.ListArray.from_arrays(starts, np.ascontiguousarray(values).reshape(-1))


def write_vocabulary(folder: StudyFolder, words: Sequence[str]) -> Files:
    """The text of every token, so that a store can be shown without its model."""
    columns = {"id": np.arange(len(words)), "text": list(words)}
    return write_table(folder, "vocabulary", columns, 4096)


def write_endings(folder: StudyFolder, state: ScanState, kept: KeptSentences) -> Files:
    """For every cell the tokens that two or more of its triggers end in, most frequent first."""
    with ThreadPoolExecutor() as pool:
        layers = list(pool.map(partial(_endings, state, kept), sorted(state)))
    names = ("layer", "cell", "token", "count")
    columns = {name: np.concatenate(parts) for name, *parts in zip(names, *layers, strict=True)}
    return write_table(folder, "endings", columns, 65536)


def _endings(state: ScanState, kept: KeptSentences, number: int) -> list[NDArray[np.int32]]:
    """Those of one layer: its number, cell, token and how many triggers end in it."""
    places = state[number].triggers.places.cpu().numpy()
    cells, slots = np.nonzero(places != EMPTY)
    sentences, positions = sentence_and_position(places[cells, slots])
    read = positions > 0
    rows = kept.rows(sentences[read])
    last = kept.tokens[kept.starts[rows] + positions[read] - 1]
    pairs = cells[read].astype(np.int64) << 32 | last
    pairs.sort()
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    found, counts = pairs[first], np.diff(first, append=len(pairs))
    found, counts = found[counts > 1], counts[counts > 1]
    order = np.lexsort((-counts, found >> 32))
    columns = (np.full(len(found), number), found[order] >> 32, found[order] & 0xFFFFFFFF)
    return [column.astype(np.int32) for column in (*columns, counts[order])]
