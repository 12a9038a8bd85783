"""Text made ready for the model: shards are tokenised and put into batches, ahead of the reader."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from queue import Full, Queue
from typing import Any, TypeVar

from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.sentences import CorpusRequest, Sentences
from ffmem.corpus.tokeniser_processes import tokenised_shards
from ffmem.execution.checkpoint import ScanProgress
from ffmem.execution.plan import ScanPlan, sentence_settings
from ffmem.models.language_model import LanguageModel

Item = TypeVar("Item")

_AHEAD = 2  # items
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


def background_shards(
    model: LanguageModel, plan: ScanPlan, done: ScanProgress, meanwhile: Iterable[object] = ()
) -> Iterator[ReadyShards]:
    """What is not done yet of the corpus, in order, made ready in the background.

    Until the first is ready, steps of `meanwhile` are taken.
    """
    return prefetch(ready_shards(model, plan, done), meanwhile=meanwhile)


def ready_shards(model: LanguageModel, plan: ScanPlan, done: ScanProgress) -> Iterator[ReadyShards]:
    """Split, tokenise and batch what is left of the corpus, some shards at a time."""
    left = None if plan.max_sentences is None else plan.max_sentences - done.settled
    if left is not None and left <= 0:
        return
    request = CorpusRequest(plan.source, sentence_settings(model, plan), done.shards, left)
    shards = tokenised_shards(request, model.tokenizer, elsewhere=model.device.type == "cuda")
    first = done.shards
    while group := list(islice(shards, shards_per_batch(first, done))):
        sentences, share = Sentences.join([s.sentences for s in group]), group[-1].share
        if plan.max_sentences is not None and left is not None:
            sentences = sentences.first(left)
            left -= len(sentences)
            share = max(share or 0.0, 1 - left / plan.max_sentences)
        ready = shard_batches(model, sentences, done.budget)
        read = done.batches if first == done.shards else 0
        yield ReadyShards(sentences, ready[read:], share, len(group))
        first += len(group)
        if left is not None and left <= 0:
            return


def shards_per_batch(first: int, done: ScanProgress) -> int:
    """How many shards, from this one on, batches are made of.

    Large batches need many sentences, to fill the last of each width and to find others of the
    same length; but the first are wanted soon, so the number starts at 1 and doubles.
    """
    return min(first + 1, done.together)


def prefetch(iterator: Iterator[Item], meanwhile: Iterable[object] = ()) -> Iterator[Item]:
    """The same items in the same order, up to _AHEAD of them made ahead of the reader.

    Until the first is there, steps of `meanwhile` are taken. An exception reaches the reader at the
    item where it happened. When the reader stops early the thread ends after the item it is making.
    """
    queue: Queue[tuple[str, Any]] = Queue(_AHEAD)
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
