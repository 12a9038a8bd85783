"""A scan in one process, which saves itself now and then so that it can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ffmem.corpus.batches import Batch
from ffmem.execution.checkpoint import Checkpoint, ScanProgress, save_checkpoint
from ffmem.execution.finish import FinishedScan
from ffmem.execution.ready_shards import ReadyShards
from ffmem.execution.shard_reader import ShardReader
from ffmem.interrupts import delay_interrupts
from ffmem.scan.scanner import Scanner
from ffmem.store.folder import StudyFolder
from ffmem.store.kept_sentences import KeptSentences
from ffmem.store.manifest import ScanKey

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
                    shards=shard.shards,
                    batches=-self.progress.batches,
                    cut=int(shard.sentences.cut.sum()),
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
            found = Checkpoint(self.key, self.progress, state, self._reader.kept_sentences)
            save_checkpoint(self.folder.checkpoint, found)
        self._next_save = time.monotonic() + pause_after(time.monotonic() - began)

    def finish(self) -> FinishedScan:
        """The result, after all text is read."""
        state = self._reader.finish()
        return FinishedScan(self.key, state, self._reader.keeping, self.progress)


def pause_after(save_seconds: float) -> float:
    """How long to read on before the next save, so that saves stay a small share of the time."""
    return max(SAVE_EVERY, SAVE_SHARE * save_seconds)


def new_checkpoint(key: ScanKey, budget: int) -> Checkpoint:
    """The checkpoint of a scan that has read nothing yet."""
    return Checkpoint(key, start_progress(budget), {}, KeptSentences.empty())


def start_progress(budget: int) -> ScanProgress:
    """Nothing read, and how batches will be made."""
    return ScanProgress(budget=budget, together=max(1, budget // SHARD_SHARE))
