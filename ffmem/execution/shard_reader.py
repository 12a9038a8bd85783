"""Shards made ready and read, with the sentences that the state points at kept beside it.

`prefetch` makes them ready ahead of time, in one background thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Full, Queue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.kept_sentences import KeptSentences
from ffmem.corpus.sentences import Sentences
from ffmem.corpus.shards import sentence_and_position
from ffmem.models.language_model import LanguageModel
from ffmem.scan.hashing import EMPTY
from ffmem.scan.scanner import Scanner, ScanState

SHARDS_PER_SAVE = 32  # shards that a worker reads between two saves, at most
WHOLE_TEXT_PIECES = 4  # pieces of work whose whole text is held before any of it is dropped
Item = TypeVar("Item")

_POLL = 0.05  # seconds between looks at whether the reader has stopped
_PATIENCE = 1.0  # seconds that a reader who stops early waits for the thread


@dataclass(frozen=True)
class ReadyShards:
    """One shard, or some in a row, ready to be read."""

    sentences: Sentences
    batches: list[Batch]
    share: float | None = None  # of the corpus, up to the end of this
    shards: int = 1


def shard_batches(model: LanguageModel, sentences: Sentences, budget: int) -> list[Batch]:
    """All batches of some sentences: the same for the same budget, on any machine."""
    model.check_tokenizer(int(sentences.tokens.max(initial=0)))
    return list(batches(sentences, model.bos, model.bos or 0, budget))


class ShardReader:
    """A scanner that reads shard after shard, and the sentences that its state points at."""

    def __init__(self, scanner: Scanner, state: ScanState, kept: KeptSentences) -> None:
        self.scanner = scanner
        if state:
            scanner.resume(state)
        self._recent: list[Sentences] = []
        self._pool = ThreadPoolExecutor(1, "ffmem-keep")
        self.keeping = at_hand(kept)  # the sentences that the latest snapshot points at

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
        state = self.scanner.state()
        wanted, kept = sentence_numbers(state), self.kept_sentences
        self.keeping = self._pool.submit(keep_sentences, wanted, kept, self._recent)
        self._recent = self._recent[-1:]
        return state


def at_hand(kept: KeptSentences) -> Future[KeptSentences]:
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
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]


def prefetch(
    iterator: Iterator[Item], depth: int = 2, meanwhile: Iterable[object] = ()
) -> Iterator[Item]:
    """The same items in the same order, up to `depth` of them made ahead of the reader.

    Until the first is there, steps of `meanwhile` are taken. An exception reaches the reader at the
    item where it happened. When the reader stops early the thread ends after the item it is making.
    """
    queue: Queue[tuple[str, Any]] = Queue(depth)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(iterator, queue, stopped), name="ffmem-prefetch", daemon=True
    )
    thread.start()
    try:
        for _ in meanwhile:
            if not queue.empty():
                break
        while True:
            kind, item = queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        stopped.set()
        thread.join(_PATIENCE)


def _fill(iterator: Iterator[Any], queue: Queue[tuple[str, Any]], stopped: threading.Event) -> None:
    try:
        for item in iterator:
            if not _put(queue, ("item", item), stopped):
                return
        _put(queue, ("end", None), stopped)
    except BaseException as error:  # the reader's thread raises it
        _put(queue, ("error", error), stopped)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _put(queue: Queue[tuple[str, Any]], item: tuple[str, Any], stopped: threading.Event) -> bool:
    """Wait for room; False when the reader has stopped."""
    while not stopped.is_set():
        try:
            queue.put(item, timeout=_POLL)
        except Full:
            continue
        return True
    return False
