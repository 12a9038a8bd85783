"""Shards that are ready are read; the sentences that the state points at are kept beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.batches import Batch
from ffmem.corpus.sentences import Sentences
from ffmem.corpus.shards import EMPTY, sentence_and_position
from ffmem.execution.ready_shards import ReadyShards
from ffmem.scan.scanner import Scanner, ScanState
from ffmem.store.kept_sentences import KeptSentences

SHARDS_PER_SAVE = 32  # shards that a worker reads between two saves, at most
WHOLE_TEXT_PIECES = 4  # pieces of work whose whole text is held before any of it is dropped


class ShardReader:
    """A scanner that reads shard after shard, and the sentences that its state points at."""

    def __init__(self, scanner: Scanner, state: ScanState, kept: KeptSentences) -> None:
        self.scanner = scanner
        if state:
            scanner.resume(state)
        self._recent: list[Sentences] = []
        self._pool = ThreadPoolExecutor(1, "ffmem-keep")
        self.keeping = future_of(kept)  # the sentences that the latest snapshot points at

    @property
    def kept_sentences(self) -> KeptSentences:
        """The sentences that the latest snapshot points at."""
        return self.keeping.result()

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
        return len(self._recent) >= WHOLE_TEXT_PIECES and held >= len(self.kept_sentences.tokens)

    def snapshot(self) -> ScanState:
        """The state so far; `kept_sentences` are brought up to it, in the background.

        The latest shard stays at hand: the rest of it may still be read.
        """
        return self._keep_sentences_of(self.scanner.state())

    def finish(self) -> ScanState:
        """The same after all text is read."""
        return self._keep_sentences_of(self.scanner.end())

    def _keep_sentences_of(self, state: ScanState) -> ScanState:
        wanted, kept = sentence_numbers(state), self.kept_sentences
        self.keeping = self._pool.submit(keep_sentences, wanted, kept, self._recent)
        self._recent = self._recent[-1:]
        return state


def future_of(kept: KeptSentences) -> Future[KeptSentences]:
    """Sentences for which nobody has to wait."""
    found: Future[KeptSentences] = Future()
    found.set_result(kept)
    return found


def keep_sentences(
    wanted: NDArray[np.int64], kept: KeptSentences, recent: Sequence[Sentences]
) -> KeptSentences:
    """The sentences of these numbers, from those kept before and those read since."""
    kept = kept.only(wanted)
    new = np.setdiff1d(wanted, kept.numbers, assume_unique=True)
    return KeptSentences.join([kept, *(KeptSentences.of(one).only(new) for one in recent)])


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
    if not len(numbers):
        return numbers
    least = numbers.min()
    if numbers.max() - least < len(numbers):  # a place for each takes less time than a sort
        there = np.zeros(numbers.max() - least + 1, np.bool_)
        there[numbers - least] = True
        return np.flatnonzero(there) + least
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]
