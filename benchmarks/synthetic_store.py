"""A store of any size without a model: random triggers, values and sentences, to measure with.

    python -m benchmarks.synthetic_store --into FOLDER --layers 32 --memories 14336 --signed

Words follow Zipf's law, so that a few tokens are promoted, and a few words read, very often. The
files are those of a real study, with histograms, weights, agreement, coefficients along triggers,
labels and a list; only what they say is random.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffmem.analyses.coefficients.measure import as_arrays, pairs_within
from ffmem.annotations.database import Annotations
from ffmem.files.whole_files import write_whole
from ffmem.memories.weight_statistics import class_names
from ffmem.scan.histograms import COLUMNS
from ffmem.scan.settings import ScanSettings
from ffmem.store.digests import Files
from ffmem.store.folder import StudyFolder
from ffmem.store.kept_sentences import KeptSentences, flat_indices, starts_of
from ffmem.store.manifest import Manifest, ScanKey
from ffmem.store.people.memory_labels import Label
from ffmem.store.scan_store import ScanStore
from ffmem.store.scan_writer import (
    write_array,
    write_rows,
    write_sentences,
    write_slots,
    write_table,
    write_vocabulary,
)
from ffmem.store.search.columns import NUMBERS, write_columns

TOP, SAMPLE, ENDS = 50, 32, 20
BAR = 0.25  # above which a coefficient counts as firing, in every layer
COLOURED = 2000  # cells whose coefficients along their sentences are stored
LABELS = 500
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", required=True, type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--memories", type=int, default=14_336, help="per layer")
    parser.add_argument("--signed", action="store_true", help="two cells per memory")
    parser.add_argument("--sentences", type=int, default=300_000)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    options = parser.parse_args()
    folder = StudyFolder(options.into)
    words = vocabulary(options.vocabulary)
    kept = sentences(words, options.sentences)
    cells = options.layers * options.memories * (2 if options.signed else 1)
    no_endings = {name: np.zeros(0, np.int32) for name in ("layer", "cell", "token", "count")}
    files = {
        **write_vocabulary(folder, words),
        **write_sentences(folder, kept),
        **write_cells(folder, cells, kept),
        **write_values(folder, options.layers, options.memories, len(words)),
        **write_table(folder, "endings", no_endings, 65_536),
    }
    files |= write_array(folder, "thresholds", np.full(options.layers, BAR, np.float32))
    manifest(options, kept, files).write(folder)
    write_results(ScanStore.open(options.into), len(words))
    print(f"{options.layers * options.memories:,} memories, {cells:,} cells -> {options.into}")


def vocabulary(count: int) -> list[str]:
    """Pronounceable words, each with the space in front that a tokenizer gives it."""
    draw = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < count:
        word = "".join(draw.choice(SYLLABLES, draw.integers(1, 5)))
        found[" " + word] = None
    return list(found)


def zipf(draw: np.random.Generator, most: int, size: tuple[int, ...]) -> NDArray[np.int32]:
    """Numbers from 0 up, each about as frequent as one over its place."""
    chances = 1 / np.arange(10, most + 10)
    edges = np.cumsum(chances / chances.sum())
    return np.minimum(np.searchsorted(edges, draw.random(size)), most - 1).astype(np.int32)


def sentences(words: list[str], count: int) -> KeptSentences:
    """Sentences of 5 to 40 words; a token is a word."""
    draw = np.random.default_rng(2)
    lengths = draw.integers(5, 41, count)
    tokens = zipf(draw, len(words), (int(lengths.sum()),))
    letters = np.frombuffer("".join(words).encode(), dtype=np.uint8)
    sizes = np.array([len(word) for word in words], dtype=np.int64)
    text = letters[flat_indices(starts_of(sizes)[tokens], sizes[tokens])]
    starts, ends = starts_of(lengths), np.cumsum(sizes[tokens])
    text_starts = np.concatenate([[0], ends[starts[1:] - 1]])
    token_ends = ends - np.repeat(text_starts[:-1], lengths)
    return KeptSentences(
        np.arange(count, dtype=np.int64),
        starts,
        tokens,
        token_ends.astype(np.int32),
        text_starts.astype(np.int64),
        text,
    )


def write_cells(folder: StudyFolder, cells: int, kept: KeptSentences) -> Files:
    """Triggers, sample and counts of every cell; one in a thousand is dead."""
    draw = np.random.default_rng(3)
    lengths = np.diff(kept.starts)
    alive = draw.random(cells) > 0.001
    files: Files = {}
    for kind, slots in (("trigger", TOP), ("sample", SAMPLE)):
        rows = draw.integers(0, len(kept), (cells, slots), dtype=np.uint32)
        positions = 1 + (draw.random((cells, slots), dtype=np.float32) * (lengths[rows] - 1))
        strength = draw.gamma(2, 0.5, (cells, slots)).astype(np.float32)
        strength = -np.sort(-strength, axis=1) if kind == "trigger" else strength
        rows[~alive] = np.iinfo(np.uint32).max
        strength = np.where(alive[:, None], as_bfloat16(strength), 0)
        files |= write_slots(folder, kind, strength, rows, positions.astype(np.uint16))
        if kind == "trigger":
            files |= write_array(folder, "largest", strength[:, 0])
    most = min(1_000_000, len(kept.tokens))
    fires = np.where(alive, draw.integers(TOP, most, cells), 0)
    files |= write_array(folder, "fires", fires.astype(np.uint32))
    files |= write_array(folder, "totals", fires * draw.integers(1 << 20, 1 << 25, cells))
    shares = draw.dirichlet(np.ones(COLUMNS), cells)
    counts = (shares * fires[:, None]).astype(np.uint32)
    files |= write_rows(folder, "histogram", counts)
    firing = counts[:, COLUMNS // 2 :].sum(axis=1, dtype=np.uint32)
    return files | write_array(folder, "firing", firing)


def as_bfloat16(coefficients: NDArray[np.float32]) -> NDArray[np.float32]:
    """Coefficients as a model in bfloat16 has them."""
    return (coefficients.view(np.uint32) & 0xFFFF0000).view(np.float32)


def write_results(store: ScanStore, words: int) -> None:
    """What analyses and people leave beside a scan, and pages show."""
    draw, cells, memories = np.random.default_rng(5), store.cells, sum(store.memories.values())
    kinds = np.array(class_names(cells.signed))
    numbers = {name: draw.normal(size=memories).astype(np.float32) for name in NUMBERS}
    kind = kinds[draw.integers(0, len(kinds), memories)]
    write_columns(store.folder.weights, {"class": kind, **numbers})
    ranks = zipf(draw, words, (cells.count, TOP))
    write_arrays(store.folder, "values", {"ranks": ranks})
    first = cells.addresses(draw.integers(0, cells.count, COLOURED))
    pairs, _ = pairs_within(store, first, 1 << 30)
    lengths = np.diff(store.sentences.starts)
    found = {
        (cells.row(cell), row): draw.random(lengths[row], dtype=np.float32).astype(np.float16)
        for cell, row in pairs
    }
    write_arrays(store.folder, "coefficients", as_arrays(store, found))
    people = Annotations.open(f"sqlite:///{store.folder.annotations}")
    labels, names = people.labels(store.manifest.key.digest), [str(cell) for cell in first[:LABELS]]
    for name in names:
        labels.set_label(name, Label(f"what {name} is for", "a note"))
    labels.add("starred", names)
    people.close()


def write_arrays(folder: StudyFolder, name: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Arrays beside the results, as a study keeps them."""

    def save(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    write_whole(folder.numbers(name), save)


def write_values(folder: StudyFolder, layers: int, memories: int, words: int) -> Files:
    """Both ends of every value's ranking."""
    draw = np.random.default_rng(4)
    count = layers * memories
    columns: dict[str, Any] = {
        "layer": np.repeat(np.arange(1, layers + 1, dtype=np.int32), memories),
        "memory": np.tile(np.arange(memories, dtype=np.int32), layers),
    }
    for end, sign in (("promoted", -1), ("suppressed", 1)):
        columns[end] = zipf(draw, words, (count, ENDS))
        logits = sign * np.sort(sign * draw.gamma(2, 1, (count, ENDS)), axis=1)
        columns[f"{end}_logits"] = (-sign * logits).astype(np.float32)
    columns["probability"] = draw.random(count, dtype=np.float32)
    columns["suppressed_probability"] = draw.random(count, dtype=np.float32)
    return write_table(folder, "values", columns, 8192)


def manifest(options: argparse.Namespace, kept: KeptSentences, files: Files) -> Manifest:
    """What a scan would say of itself."""
    names = dict.fromkeys(("revision", "dtype", "weights", "tokenizer", "bos"))
    key = ScanKey(
        model={**names, "name": "synthetic", "type": "none"},
        corpus={"path": "synthetic", "digest": "none"},
        settings=asdict(ScanSettings(top=TOP, sample=SAMPLE, signed=options.signed)),
    )
    counts = {"sentences": len(kept), "tokens": len(kept.tokens), "prefixes": len(kept.tokens)}
    layers = [(number, options.memories) for number in range(1, options.layers + 1)]
    return Manifest(key, layers, options.signed, counts, 0.0, {}, files)


if __name__ == "__main__":
    main()
