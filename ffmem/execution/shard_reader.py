"""Shards made ready and read, with the sentences that the state points at kept beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.kept_sentences import KeptSentences
from ffmem.corpus.places import sentence_and_position
from ffmem.corpus.sentences import Sentences
from ffmem.models.language_model import LanguageModel
from ffmem.scan.hashing import EMPTY
from ffmem.scan.scanner import Scanner, ScanState

HELD_SHARDS = 32  # shards that a worker reads between two saves, at most
FEW = 4  # pieces of work whose whole text is held before any of it is dropped


@dataclass(frozen=True)
class ReadyShards:
    """One shard, or some in a row, ready to be read."""

    sentences: Sentences
    batches: list[Batch]
    share: float | None = None  # of the corpus, up to the end of this
    shards: int = 1


def shard_batches(model: LanguageModel, sentences: Sentences, budget: int) -> list[Batch]:
    """All batches of some sentences: the same for the same budget, on any machine."""
    return list(batches(sentences, model.bos, model.bos or 0, budget))


class ShardReader:
    """A scanner that reads shard after shard, and the sentences that its state points at."""

    def __init__(self, scanner: Scanner, state: ScanState, kept: KeptSentences) -> None:
        self.scanner, self.kept = scanner, kept
        if state:
            scanner.resume(state)
        self._recent: list[Sentences] = []

    def read(self, work: ReadyShards) -> Iterator[Batch]:
        """Read a shard; gives each batch when it has been read."""
        self._recent.append(work.sentences)
        for batch in work.batches:
            self.scanner.read(batch)
            yield batch
        if self._holds_much():
            self.snapshot()

    def _holds_much(self) -> bool:
        """Whether whole shards weigh as much as what was kept of earlier ones, and are many.

        So the work of keeping grows with the corpus and no faster, and memory is bounded by a
        few times what the state can point at.
        """
        held = sum(len(sentences.tokens) for sentences in self._recent)
        return len(self._recent) >= FEW and held >= len(self.kept.tokens)

    def snapshot(self) -> ScanState:
        """The state so far; `kept` is brought up to it.

        The latest shard stays at hand: the rest of it may still be read.
        """
        state = self.scanner.state()
        wanted = sentence_numbers(state)
        kept = self.kept.only(wanted)
        new = np.setdiff1d(wanted, kept.numbers, assume_unique=True)
        read = [KeptSentences.of(sentences).only(new) for sentences in self._recent]
        self.kept = KeptSentences.join([kept, *read])
        self._recent = self._recent[-1:]
        return state


def sentence_numbers(state: ScanState) -> NDArray[np.int64]:
    """The numbers of all sentences that a state points at, in order, each once."""
    found: list[NDArray[np.int64]] = []
    for layer in state.values():
        for places in (layer.triggers.places, layer.sample.places):
            sentences = sentence_and_position(places[places != EMPTY])[0]
            few = sentences if sentences.device.type == "cpu" else sentences.unique()
            found.append(distinct(few.cpu().numpy()))
    return distinct(np.concatenate(found))


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order; many times faster than numpy's `unique`, which hashes."""
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]
