"""A scan in one process, which saves itself now and then so that it can be resumed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from ffmem.corpus.batches import Batch
from ffmem.corpus.kept_sentences import KeptSentences
from ffmem.corpus.sentences import CorpusRequest, Sentences, TokenisedShard, tokenise_corpus
from ffmem.corpus.tokeniser_processes import can_tokenise_elsewhere, tokenise_in_processes
from ffmem.errors import ScanError
from ffmem.execution.finish import FinishedScan
from ffmem.execution.plan import ScanPlan, sentence_settings
from ffmem.execution.shard_reader import ReadyShards, ShardReader, prefetch, shard_batches
from ffmem.models.language_model import LanguageModel
from ffmem.scan.scanner import Scanner
from ffmem.store.checkpoint import Checkpoint, ScanProgress, save_checkpoint
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import ScanKey

MOST_SHARDS = 1 << 16  # sentence numbers are stored in 32 bits
SAVE_EVERY = 60.0  # seconds between checkpoints, at least
SAVE_SHARE = 50  # a checkpoint's own seconds count so many times towards the next one
SHARD_SHARE = 8_192  # of a batch's tokens, so many for each shard that batches are made of
ScanWatch = Callable[[ScanProgress, float | None], None]


class ScanRun:
    """A scan under way: reads, and saves itself now and then so that it can be resumed."""

    def __init__(
        self, scanner: Scanner, folder: StudyFolder, key: ScanKey, start: Checkpoint
    ) -> None:
        self.folder, self.key, self.progress = folder, key, start.progress
        self._reader = ShardReader(scanner, start.state, start.kept)
        self._began = time.monotonic() - start.progress.seconds
        self._next_save = time.monotonic() + SAVE_EVERY

    def read(self, shards_of_work: Iterator[ReadyShards], watch: ScanWatch) -> None:
        """Read all the work there is."""
        for shard in shards_of_work:
            batches = self._reader.read(shard)
            while self._read_one(batches):
                watch(self.progress, shard.share)
                if time.monotonic() > self._next_save:
                    self.save()
            with delay_interrupts():
                self._advance(
                    shards=shard.shards, batches=-self.progress.batches, cut=shard.sentences.cut
                )
                self.progress = replace(self.progress, settled=self.progress.sentences)

    def _read_one(self, batches: Iterator[Batch]) -> bool:
        """Read one batch and count it, both or neither; False after the last."""
        with delay_interrupts():
            batch = next(batches, None)
            if batch is None:
                return False
            tokens, sentences = int(batch.lengths.sum()), len(batch.lengths)
            self._advance(batches=1, tokens=tokens, sentences=sentences)
        return True

    def _advance(self, **steps: int) -> None:
        counts = {name: getattr(self.progress, name) + step for name, step in steps.items()}
        seconds = time.monotonic() - self._began
        self.progress = replace(self.progress, seconds=seconds, **counts)

    def save(self) -> None:
        """Write a checkpoint that holds all that was read so far."""
        began = time.monotonic()
        with delay_interrupts():
            state = self._reader.snapshot()
            found = Checkpoint.of(self.key, self.progress, state, self._reader.kept_sentences)
            save_checkpoint(self.folder.checkpoint, found)
        self._next_save = time.monotonic() + pause_after(time.monotonic() - began)

    def finish(self) -> FinishedScan:
        """The result, after all text is read."""
        state, settings = self._reader.snapshot(), self._reader.scanner.settings
        return FinishedScan(self.key, settings, state, self._reader.keeping, self.progress)


def pause_after(save_seconds: float) -> float:
    """How long to read on before the next save, so that saves stay a small share of the time."""
    return max(SAVE_EVERY, SAVE_SHARE * save_seconds)


def new_checkpoint(key: ScanKey, budget: int) -> Checkpoint:
    """The checkpoint of a scan that has read nothing yet."""
    return Checkpoint.of(key, start_progress(budget), {}, KeptSentences.empty())


def start_progress(budget: int) -> ScanProgress:
    """Nothing read, and how batches will be made."""
    return ScanProgress(budget=budget, together=max(1, budget // SHARD_SHARE))


def background_shards(
    model: LanguageModel, plan: ScanPlan, done: ScanProgress, meanwhile: Iterable[object] = ()
) -> Iterator[ReadyShards]:
    """What is not done yet of the corpus, in order, made ready in the background.

    Until the first is ready, steps of `meanwhile` are taken.
    """
    return prefetch(ready_shards(model, plan, done), meanwhile=meanwhile)


def tokenised_shards(
    model: LanguageModel, plan: ScanPlan, first: int = 0
) -> Iterator[TokenisedShard]:
    """The tokenised shards from the given one on; for a GPU, from processes of their own."""
    reading = CorpusRequest(plan.source, sentence_settings(model, plan), first)
    if model.device.type == "cuda" and can_tokenise_elsewhere(reading, model.tokenizer):
        return tokenise_in_processes(reading, model.tokenizer)
    return tokenise_corpus(reading, model.tokenizer)


def ready_shards(model: LanguageModel, plan: ScanPlan, done: ScanProgress) -> Iterator[ReadyShards]:
    """Split, tokenise and batch what is left of the corpus, some shards at a time."""
    left = None if plan.max_sentences is None else plan.max_sentences - done.settled
    if left is not None and left <= 0:
        return
    shards, first = tokenised_shards(model, plan, done.shards), done.shards
    while group := list(islice(shards, shards_per_batch(first, done))):
        refuse_too_many(first + len(group) - 1)
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


def refuse_too_many(shard: int) -> None:
    """Stop at a corpus whose sentences cannot be numbered."""
    if shard >= MOST_SHARDS:
        raise ScanError("the corpus is larger than one scan can number; scan it in parts")


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Ctrl-C while this lasts is raised at its end.

    A batch that some layers have seen and others have not, or that was read but not counted, would
    be read again by those that have when the scan goes on.
    """
    handler = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread()
    if not here or handler is not signal.default_int_handler:
        yield  # Ctrl-C goes elsewhere, or is somebody else's affair
        return
    interrupt = False

    def note(_number: int, _frame: object) -> None:
        nonlocal interrupt
        interrupt = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupt:
        raise KeyboardInterrupt
