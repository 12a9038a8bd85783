"""A scan by several workers: the driver reads the text, hands out shards and keeps the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

from ffmem.corpus.compression import Meter
from ffmem.corpus.prefetch import prefetch
from ffmem.corpus.sentences import tokenise
from ffmem.corpus.shards import Shard, shards
from ffmem.corpus.sources import digest, documents, is_stream
from ffmem.errors import ScanError
from ffmem.execution.ledger import Ledger
from ffmem.execution.messages import (
    Describe,
    Finish,
    Merge,
    ModelChoice,
    ModelFacts,
    Read,
    WorkerConfig,
)
from ffmem.execution.plan import ScanPlan, refuse_other_checkpoint
from ffmem.execution.single_process import Watch, refuse_too_many, shards_per_batch
from ffmem.execution.worker import ScanWorker
from ffmem.scaleout.executor import Executor, Job, JobAnswer, WorkerFactories, WorkerFactory
from ffmem.store.folder import StudyFolder, remove_folder

ExecutorFactory = Callable[[WorkerFactories], AbstractContextManager[Executor]]
PATIENCE = 30.0  # seconds that workers get after Ctrl-C to end their shards and save


class ShardJobs:
    """The shards that are still to be read, as jobs; knows how much there was when all are made."""

    def __init__(self, plan: ScanPlan, facts: ModelFacts, ledger: Ledger) -> None:
        self._plan, self._facts = plan, facts
        self._meter = Meter()
        self._known = dict(ledger.read)
        self.left = plan.max_sentences
        self.shards = 0

    @property
    def share(self) -> float | None:
        """The part of the corpus that was handed out."""
        if self._plan.max_sentences is None or self.left is None:
            return self._meter.share
        return max(self._meter.share or 0.0, 1 - self.left / self._plan.max_sentences)

    def jobs(self) -> Iterator[Job]:
        """Jobs for all shards that no part holds; nothing of the others but their number.

        A job has the shards that one process would make batches of.
        """
        corpus = shards(documents(self._plan.source, self._meter))
        while self.left is None or self.left > 0:
            group = list(islice(corpus, shards_per_batch(self.shards, self._facts.start)))
            if not group:
                return
            refuse_too_many(group[-1].number)
            self.shards += len(group)
            counts = [(shard, self._counted(shard)) for shard in group]
            unread = [(shard, count) for shard, count in counts if shard.number not in self._known]
            if unread:
                wanted = sum(count or 0 for _, count in unread)
                chosen = tuple(shard for shard, _ in unread)
                yield Read(chosen, None if self.left is None else wanted)

    def _counted(self, shard: Shard) -> int | None:
        """How many of the shard's sentences are wanted, where there is a limit to them."""
        if self.left is None:
            return None
        if shard.number in self._known:
            count = self._known[shard.number].sentences
        else:
            settings = self._facts.key.sentence_settings()
            count = len(tokenise(shard, self._facts.tokenizer, settings).first(self.left))
        self.left -= count
        return count


@dataclass
class DistributedScan:
    """A scan under way on several workers."""

    model: ModelChoice
    plan: ScanPlan
    folder: StudyFolder
    watch: Watch

    def __post_init__(self) -> None:
        if is_stream(self.plan.source):
            raise ScanError(
                "standard input, or a pipe, cannot be read again if a worker is lost; put the text "
                "into a file"
            )
        self._digest = digest(self.plan.source)
        self._ledger = Ledger.open(self.folder)
        self._began = time.monotonic() - self._ledger.seconds

    def run(self, staff: ExecutorFactory, wanted: Callable[[ModelFacts], bool]) -> None:
        """Scan and write the store, if the model is `wanted`."""
        with staff(self._hire) as executor:
            facts: ModelFacts = only_answer(executor, Describe())
            if not wanted(facts):
                return
            if self._ledger.digest is not None:
                digest, key = self._ledger.digest, self._ledger.key
                refuse_other_checkpoint(self.folder.root, digest, key, facts.key)
            self._read(executor, facts)
            part = self._merge(executor)
            only_answer(executor, Finish(part, self._ledger.progress(self._seconds)))
        remove_folder(self.folder.parts)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _hire(self, worker: int) -> WorkerFactory:
        name, begins_with = self._ledger.hire(worker)
        plan, folder = self.plan, self.folder
        return partial(
            ScanWorker,
            WorkerConfig(
                self.model.on_worker(worker),
                plan,
                self._digest,
                folder,
                worker,
                name,
                begins_with,
                self._seconds,
            ),
        )

    def _read(self, executor: Executor, facts: ModelFacts) -> None:
        text = ShardJobs(self.plan, facts, self._ledger)
        try:
            self._follow(executor.run(prefetch(text.jobs())), text)
        except KeyboardInterrupt:
            self._follow(executor.run((), PATIENCE), text)
            raise
        self._ledger.check_whole(text.shards)

    def _follow(self, answers: Iterator[JobAnswer], text: ShardJobs) -> None:
        for done in answers:
            self._ledger.acknowledge(done.report)
            if done.report.read:
                self.watch(self._ledger.progress(self._seconds), text.share)

    def _merge(self, executor: Executor) -> str:
        """Merge the parts two by two until one holds everything."""
        while len(parts := sorted(self._ledger.parts)) > 1:
            pairs = list(pairwise(parts))[::2]
            jobs = [Merge(i, pair, self._ledger.new_name()) for i, pair in enumerate(pairs)]
            for done in executor.run(jobs):
                if isinstance(done.report, Merge):
                    self._ledger.replace(done.report.parts, done.report.into)
        return parts[0]


def only_answer(executor: Executor, job: Job) -> Any:
    """What a worker says to a single job."""
    said = [done.report for done in executor.run([job]) if job.number in done.settled]
    return said[0]
