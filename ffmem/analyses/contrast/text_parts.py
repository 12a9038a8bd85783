"""The text of a scan in parts that are alike in size, and how often every cell fires in each.

Neighbouring sentences are alike, and so are those of one document. What is compared between
corpora are therefore parts: documents, or runs of them where there are many. A text of few
documents is cut into runs of sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.corpus.sentences import Sentences, SentenceSettings, sentence_texts, tokenise
from ffmem.corpus.shards import Shard, shards
from ffmem.corpus.sources import (
    IN_MEMORY,
    STREAM,
    Source,
    digest,
    documents,
    refuse_missing,
)
from ffmem.errors import StoreError
from ffmem.execution.plan import ScanPlan, sentence_settings
from ffmem.execution.ready_shards import shard_batches
from ffmem.memories.recording import record_forward
from ffmem.models.language_model import LanguageModel
from ffmem.scan.batch_rows import BatchRows
from ffmem.scan.hashing import priorities
from ffmem.scan.settings import ScanSettings
from ffmem.store.scan_store import ScanStore

PARTS = 64  # of a corpus, at most
FEWEST_PARTS = 8
FEWEST_DOCUMENTS = 20  # that stand for a corpus; of fewer, runs of sentences are compared
SHARDS = 4  # of a scanned text that documents are drawn from, 2 MB each
BATCH_TOKENS = 1024  # coefficients of all layers are held for so many
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TextParts:
    """Sentences in the order of the text, and the part that each belongs to, from 0."""

    sentences: Sentences
    part: NDArray[np.int64]
    of_documents: bool  # no part ends within a document

    @property
    def count(self) -> int:
        """How many parts there are."""
        return int(self.part[-1]) + 1


@dataclass(frozen=True)
class PartCounts:
    """How often every cell fires in each part of a corpus, by the same threshold as elsewhere."""

    name: str
    fires: Floats  # [part, cell], prefixes with a coefficient above the threshold
    prefixes: Floats  # [part]
    means: Floats  # [cell], of the coefficients above the threshold
    sentences: int
    of_documents: bool

    @property
    def rate(self) -> Floats:
        """Share of all prefixes that fire each cell."""
        return np.asarray(self.fires.sum(axis=0) / max(self.prefixes.sum(), 1))


def scanned_text(store: ScanStore) -> Source:
    """The text of a scan; refuses one that is gone or another one now."""
    key, root = store.manifest.key, store.folder.root
    if key.corpus["digest"] == STREAM or key.corpus["path"] == IN_MEMORY:
        raise StoreError(
            f"a contrast reads the text again, and that of {root} lies in no file; write it into "
            "one and scan that"
        )
    source = refuse_missing(key.source())
    if digest(source) != key.corpus["digest"]:
        raise StoreError(
            f"{source.path} has changed since {root} was made, and a contrast reads the text "
            "again; scan it again into another folder"
        )
    return source


def _scanned_documents(store: ScanStore, settings: SentenceSettings) -> tuple[list[str], list[int]]:
    """The documents at the beginning of the scanned text, and how many sentences each has."""
    left = store.manifest.key.corpus["max_sentences"]
    texts: list[str] = []
    sizes: list[int] = []
    for shard in islice(shards(documents(scanned_text(store))), SHARDS):
        for document in shard.documents:
            if left is not None and left <= 0:
                return texts, sizes
            texts.append(document)
            sizes.append(1 if settings.chat else len(sentence_texts([document], settings)))
            left = None if left is None else left - sizes[-1]
    return texts, sizes


def read_parts(store: ScanStore, model: LanguageModel, most: int) -> TextParts:
    """The scanned text in parts; of a text of more than `most` sentences, documents at random.

    Of a document that would be more than a part of those, the first sentences are read.
    """
    key = store.manifest.key
    plan = ScanPlan(scanned_text(store), ScanSettings(), key.sentence_settings())
    settings = sentence_settings(model, plan)
    texts, sizes = _scanned_documents(store, settings)
    order, longest = np.arange(len(texts)), most
    if sum(sizes) > most:
        order = priorities(torch.from_numpy(order), seed=0).argsort().numpy()
        longest = max(1, most // FEWEST_DOCUMENTS)
    end = key.corpus["max_sentences"] or most
    found: dict[int, Sentences] = {}
    left = min(most, end)
    for place in order.tolist():
        one = tokenise(Shard(0, [texts[place]]), model.tokenizer, settings)
        one = one.first(min(longest, left))
        if len(one):
            found[place] = one
            left -= len(one)
        if left <= 0:
            break
    if not found:
        raise StoreError(f"the text of {store.folder.root} has no sentence to read")
    return _in_parts([found[place] for place in sorted(found)], store)


def _in_parts(each: list[Sentences], store: ScanStore) -> TextParts:
    """Documents in order, as parts of about as many sentences each."""
    sizes = np.array([len(one) for one in each])
    whole = Sentences.join(each)
    whole = replace(whole, numbers=np.arange(len(whole), dtype=np.int64))
    of_documents = len(each) >= FEWEST_DOCUMENTS
    if of_documents:
        middle = np.cumsum(sizes) - sizes / 2
        parts = np.arange(len(each))
        if len(each) > PARTS:
            parts = (middle * PARTS / len(whole)).astype(np.int64)
        part = np.repeat(parts, sizes)
    else:
        part = np.arange(len(whole)) * min(PARTS, len(whole)) // len(whole)
    _, part = np.unique(part, return_inverse=True)
    found = TextParts(whole, part.astype(np.int64), of_documents)
    if found.count < FEWEST_PARTS:
        raise StoreError(
            f"{store.folder.root} is a scan of {len(whole)} sentences, and a contrast needs "
            f"{FEWEST_PARTS}; scan more text"
        )
    return found


@torch.no_grad()
def count_firing(
    model: LanguageModel,
    store: ScanStore,
    text: TextParts,
    thresholds: Mapping[int, float],
    name: str,
) -> PartCounts:
    """Read the text once and count, for every cell and part, the prefixes that fire it."""
    layers = [model.layer(number) for number in store.memories]
    fires = torch.zeros(text.count, store.cells.count)
    sums = torch.zeros(store.cells.count, dtype=torch.double)
    prefixes = torch.zeros(text.count)
    settings = store.manifest.key.scan_settings()
    for batch in shard_batches(model, text.sentences, BATCH_TOKENS):
        lines, rows = _admissible_lines(BatchRows.of(batch, settings), batch.tokens.shape[1])
        part = torch.from_numpy(text.part)[batch.sentences[rows]]
        member = torch.nn.functional.one_hot(part, text.count).T.float()
        prefixes += member.sum(dim=1)
        width = batch.tokens.numel()

        def keep(m: Tensor, lines: Tensor = lines, width: int = width) -> Tensor:
            return m.reshape(width, -1)[lines.to(m.device)].clone()

        with record_forward(layers, "m", keep) as readings:
            model.run_blocks(batch.tokens.to(model.device))
        for reading in readings:
            number = reading.layer.number
            for cells, m in _signed_cells(store, number, reading.m.float().cpu()):
                above = m > thresholds[number]
                fires[:, cells] += member @ above.float()
                sums[cells] += (m * above).sum(dim=0).double()
    total = fires.sum(dim=0).double()
    means = (sums / total.clamp(min=1)).numpy()
    counts = fires.double().numpy(), prefixes.double().numpy()
    return PartCounts(name, *counts, means, len(text.sentences), text.of_documents)


def _admissible_lines(rows: BatchRows, width: int) -> tuple[Tensor, Tensor]:
    """The places of a batch where a prefix ends that a scan would count, and the row of each."""
    lines = rows.lines
    if lines is None:
        step = torch.arange(width) - rows.first
        lines = ((step >= 0) & (step < rows.counts[:, None])).flatten().nonzero()[:, 0]
    return lines, lines // width


def _signed_cells(store: ScanStore, layer: int, m: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The rows of a layer's cells, sign by sign, with coefficients [prefix, cell] in that sign."""
    start = store.cells.rows_of(layer).start
    for sign in store.cells.signs:
        within = store.cells.within(layer, sign)
        rows = slice(start + within.start, start + within.stop)
        yield rows, -m if sign == "-" else m
