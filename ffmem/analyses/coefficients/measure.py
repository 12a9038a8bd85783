"""A memory's coefficient at every token of a sentence: what colours a text.

A study keeps them for the memories that pages show first, so that their triggers are coloured
without the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.coefficients.record import CONFIDENT, StoredSizes
from ffmem.analyses.inputs.prefix_sample import BATCH_TOKENS, prefix_batches
from ffmem.memories.recording import record_forward, stop_after
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps
from ffmem.store.cells import sign_factor
from ffmem.store.kept_sentences import starts_of
from ffmem.store.memory_page import page_sentences
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex

SHARE = 0.05  # of the scan's bytes, at most
LEAST_BUDGET = 256 << 10  # bytes, for scans that are small themselves
CONFIDENT_OF_KIND = 12  # that are right about their triggers, and that never are
RIGHT = 0.5  # share of triggers
CONFIDENT_PER_LAYER = 1
ENTRY = 16  # bytes beside the numbers of a sentence
Numbers = NDArray[np.float32]


@torch.no_grad()
def coefficients_along(
    model: LanguageModel, cells: Sequence[Address], sentences: Sequence[Tensor]
) -> list[Numbers]:
    """Of every sentence [cell, token]: the coefficients of some cells of one layer.

    Positive where the cell fires. Layers above theirs are never run.
    """
    found: list[Numbers] = [np.zeros((len(cells), 0), np.float32)] * len(sentences)
    if not cells:
        return found
    layer = model.layer_of(cells[0])
    index = torch.tensor([model.index_of(cell) for cell in cells])
    signs = np.array([[sign_factor(cell)] for cell in cells], np.float32)
    lead = 0 if model.bos is None else 1
    for batch in prefix_batches(sentences, model.bos, len(sentences), BATCH_TOKENS):
        shape = batch.tokens.shape

        def keep(m: Tensor, shape: torch.Size = shape) -> Tensor:
            return m.reshape(*shape, -1)[..., index.to(m.device)].float()

        with record_forward([layer], "m", keep) as (reading,), stop_after(layer):
            model.run_blocks(batch.tokens.to(model.device))
        numbers = reading.m.cpu().numpy()
        for place, row in enumerate(batch.rows.tolist()):
            last = lead + len(sentences[row])
            found[row] = signs * numbers[place, lead:last].T
    return found


@dataclass(frozen=True, eq=False)
class SentenceCoefficients:
    """Coefficients as they are stored: in shares of each cell's largest, in 16 bits."""

    sizes: StoredSizes
    arrays: dict[str, NDArray[Any]] = field(repr=False)


def first_cells(
    store: ScanStore, drawn: Sequence[Address], ranks: NDArray[Any] | None = None
) -> list[Address]:
    """The cells that pages show first: those `drawn` for patterns, then the most confident values.

    `ranks` [cell, trigger] of the tokens behind triggers, where they are known, also give the
    most confident values that are right about them, and those that never are.
    """
    order = MemoryIndex.at_once(store).order("probability")
    rows = order[:CONFIDENT].tolist()
    if ranks is not None and len(ranks) == len(order):
        share = (ranks == 0).sum(axis=1) / np.maximum((ranks >= 0).sum(axis=1), 1)
        for fits in (share >= RIGHT, share == 0):
            rows += order[fits[order]][:CONFIDENT_OF_KIND].tolist()
    for layer in store.memories:
        inside = store.cells.rows_of(layer)
        here = order[(order >= inside.start) & (order < inside.stop)]
        rows += here[:CONFIDENT_PER_LAYER].tolist()
    return list(dict.fromkeys([*drawn, *store.cells.addresses(rows)]))


def read_page_coefficients(
    model: LanguageModel, store: ScanStore, cells: Sequence[Address]
) -> SentenceCoefficients:
    """Read the sentences on the pages of some cells, the first cells first, within the budget."""
    files = store.manifest.files.values()
    budget = max(LEAST_BUDGET, int(SHARE * sum(file.bytes for file in files)))
    pairs, size = pairs_within(store, cells, budget)
    found: dict[tuple[int, int], NDArray[np.float16]] = {}
    groups = groupby(sorted(pairs, key=lambda pair: pair[0].layer), lambda pair: pair[0].layer)
    for group in steps([list(group) for _, group in groups], "layers"):
        found |= _layer_coefficients(model, store, group)
    chosen = {cell for cell, _ in pairs}
    sizes = StoredSizes(len(chosen), len(found), size, budget, len({*cells} - chosen))
    return SentenceCoefficients(sizes, as_arrays(store, found))


def _layer_coefficients(
    model: LanguageModel, store: ScanStore, pairs: Sequence[tuple[Address, int]]
) -> dict[tuple[int, int], NDArray[np.float16]]:
    """Pairs of a cell and the row of a sentence, of one layer; each sentence is read once."""
    kept, places = store.sentences, {cell: at for at, cell in enumerate(dict(pairs))}
    rows = sorted({row for _, row in pairs})
    texts = [torch.from_numpy(kept.token_ids(row).astype(np.int64)) for row in rows]
    along = dict(zip(rows, coefficients_along(model, list(places), texts), strict=True))
    found = {}
    for cell, sentence in pairs:
        row = store.cells.row(cell)
        largest = float(store.array("largest")[row]) or 1.0
        numbers = along[sentence][places[cell]]
        found[row, int(kept.numbers[sentence])] = _in_shares(numbers, largest)
    return found


def _in_shares(numbers: Numbers, largest: float) -> NDArray[np.float16]:
    """Coefficients as shares of the largest; nothing is lost by overflow."""
    most = float(np.finfo(np.float16).max)
    return np.clip(numbers / largest, -most, most).astype(np.float16)


def pairs_within(
    store: ScanStore, cells: Sequence[Address], budget: int
) -> tuple[list[tuple[Address, int]], int]:
    """Cells with the rows of the sentences on their pages, as far as the bytes reach."""
    kept, found, size = store.sentences, list[tuple[Address, int]](), 0
    for cell in cells:
        rows = kept.rows(np.unique(np.array(page_sentences(store, cell), dtype=np.int64)))
        lengths = kept.starts[rows + 1] - kept.starts[rows]
        mine = int(2 * lengths.sum()) + ENTRY * len(rows)
        if size + mine > budget:
            break
        size += mine
        found += [(cell, row) for row in rows.tolist()]
    return found, size


def as_arrays(
    store: ScanStore, found: dict[tuple[int, int], NDArray[np.float16]]
) -> dict[str, NDArray[Any]]:
    """The entries by cell and sentence, laid end to end."""
    order = sorted(found)
    sizes = np.array([len(found[key]) for key in order], dtype=np.int64)
    return {
        "scan": np.array(store.manifest.key.digest),
        "rows": np.array([row for row, _ in order], dtype=np.int64),
        "sentences": np.array([number for _, number in order], dtype=np.int64),
        "starts": starts_of(sizes),
        "shares": np.concatenate([np.zeros(0, np.float16), *(found[key] for key in order)]),
    }
