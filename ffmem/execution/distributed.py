"""A scan by several workers: the driver reads the text, hands out shards and keeps the ledger.

The ledger says which parts count: each shard is in one of them, whatever was lost on the way.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Any

from ffmem.corpus.file_formats import Meter
from ffmem.corpus.sentences import tokenise
from ffmem.corpus.shards import Shard, shards
from ffmem.corpus.sources import digest, documents, is_stream
from ffmem.errors import ScanError, StoreError
from ffmem.execution.checkpoint import ScanProgress, ShardCounts, read_notes
from ffmem.execution.executor import Executor, Job, JobAnswer, WorkerFactories, WorkerFactory
from ffmem.execution.plan import ScanPlan, refuse_other_checkpoint
from ffmem.execution.ready_shards import prefetch, shards_per_batch
from ffmem.execution.single_process import ScanWatch
from ffmem.execution.worker import (
    Describe,
    Finish,
    Merge,
    ModelChoice,
    ModelFacts,
    RankValues,
    Read,
    ScanWorker,
    WorkerConfig,
    WorkerReport,
)
from ffmem.store.folder import StudyFolder, remove_folder
from ffmem.store.manifest import ScanKey, read_manifest

ExecutorFactory = Callable[[WorkerFactories], AbstractContextManager[Executor]]
STOP_SECONDS = 30.0  # seconds that workers get after Ctrl-C to end their shards and save


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
            self.shards += len(group)
            counts = [(shard, self._count_sentences(shard)) for shard in group]
            unread = [(shard, count) for shard, count in counts if shard.number not in self._known]
            if unread:
                wanted = sum(count or 0 for _, count in unread)
                chosen = tuple(shard for shard, _ in unread)
                yield Read(chosen, None if self.left is None else wanted)

    def _count_sentences(self, shard: Shard) -> int | None:
        """How many of the shard's sentences are wanted, where there is a limit to them."""
        if self.left is None:
            return None
        if shard.number in self._known:
            count = self._known[shard.number].sentences
        else:
            settings = self._facts.key.sentence_settings()
            found = tokenise(shard, self._facts.tokenizer, settings, self.left)
            count = len(found.first(self.left))
        self.left -= count
        return count


@dataclass
class DistributedScan:
    """A scan under way on several workers."""

    model: ModelChoice
    plan: ScanPlan
    folder: StudyFolder
    watch: ScanWatch

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
            facts: ModelFacts = _only_answer(executor, Describe())
            if wanted(facts):
                self._scan(executor, facts)
            if self.plan.values and not read_manifest(self.folder).has_rankings:
                _only_answer(executor, RankValues())
        remove_folder(self.folder.parts)

    def _scan(self, executor: Executor, facts: ModelFacts) -> None:
        if self._ledger.key is not None:
            refuse_other_checkpoint(self.folder.root, self._ledger.key, facts.key)
        self._read(executor, facts)
        part = self._merge(executor)
        _only_answer(executor, Finish(part, self._ledger.progress(self._seconds)))

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
            self._follow(executor.run((), STOP_SECONDS), text)
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


def _only_answer(executor: Executor, job: Job) -> Any:
    """The report of a worker on a single job."""
    reports = [done.report for done in executor.run([job]) if job.number in done.settled]
    return reports[0]


@dataclass
class Ledger:
    """The parts that count, by name, each with its shards; no shard is in two of them.

    A part counts from the moment the driver hears of it. What a lost worker wrote and nobody
    heard of is never used, so its shards are read again. A new driver takes from the folder
    parts that share no shard, the largest first.
    """

    folder: StudyFolder
    key: ScanKey | None = None  # once there are parts
    seconds: float = 0.0
    parts: dict[str, dict[int, ShardCounts]] = field(default_factory=dict)
    read: dict[int, ShardCounts] = field(default_factory=dict)  # saved or not
    _of_worker: dict[int, tuple[str, int]] = field(default_factory=dict)  # its part, and serial
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _names: int = 0

    @classmethod
    def open(cls, folder: StudyFolder) -> Ledger:
        """The ledger of a scan that was begun before, or of a new one."""
        ledger = cls(folder)
        files = sorted(folder.parts.glob("*.safetensors")) if folder.parts.exists() else []
        found = {path.name.removesuffix(".safetensors"): read_notes(path) for path in files}
        for name, notes in sorted(found.items(), key=lambda item: -len(item[1].shards)):
            if ledger.key not in (None, notes.key):
                raise StoreError(
                    f"{folder.parts} holds parts of two scans; delete it to start again"
                )
            if ledger.safe_shards.isdisjoint(notes.shards):
                ledger.key = notes.key
                ledger.seconds = max(ledger.seconds, notes.progress.seconds)
                ledger.parts[name] = notes.shards
                ledger.read |= notes.shards
            else:
                folder.part(name).unlink(missing_ok=True)
        return ledger

    @property
    def safe_shards(self) -> set[int]:
        """The shards that need not be read again."""
        return {shard for shards in self.parts.values() for shard in shards}

    def hire(self, worker: int) -> tuple[str, str | None]:
        """A name for a new worker's parts, and the part that it takes over.

        That is the part of the lost one in whose place it comes, else one that nobody has.
        """
        name = self.new_name()
        mine = self._of_worker.get(worker)
        if mine is None:
            taken = {part for part, _ in self._of_worker.values()}
            free = [part for part in self.parts if part not in taken]
            if not free:
                return name, None
            mine = (free[0], 0)
        self._of_worker[worker] = (mine[0], 0)
        return name, mine[0]

    def new_name(self) -> str:
        """A name that no part of any run of this scan has."""
        self._names += 1
        return f"{self._run}-{self._names}"

    def acknowledge(self, report: WorkerReport) -> None:
        """Take note of what a worker did; a part that it saved counts in place of its last one."""
        self.read |= report.read
        if report.part is None or report.shards is None:
            return
        last, serial = self._of_worker.get(report.worker, (None, 0))
        if serial >= report.serial:
            self._drop(report.part)  # heard of out of turn
            return
        if not self.folder.part(report.part).exists():
            raise StoreError(
                f"a worker wrote {self.folder.part(report.part)} and it is not here: the machines "
                "do not share this folder; choose one that all of them see, or a URL"
            )
        self.parts[report.part] = report.shards
        self._of_worker[report.worker] = (report.part, report.serial)
        if last is not None:
            self._forget(last)

    def replace(self, parts: tuple[str, str], into: str) -> None:
        """Let a merged part count for its two."""
        shards = {**self.parts[parts[0]], **self.parts[parts[1]]}
        self.parts[into] = shards
        for name in parts:
            self._forget(name)

    def _forget(self, part: str) -> None:
        del self.parts[part]
        self._drop(part)

    def _drop(self, part: str) -> None:
        self.folder.part(part).unlink(missing_ok=True)

    def progress(self, seconds: float) -> ScanProgress:
        """The progress of all workers together."""
        counts = list(self.read.values())
        return ScanProgress(
            shards=len(counts),
            sentences=sum(c.sentences for c in counts),
            tokens=sum(c.tokens for c in counts),
            cut=sum(c.cut for c in counts),
            seconds=seconds,
        )

    def check_whole(self, shards: int) -> None:
        """Every shard in one part, and no other."""
        found = sorted(shard for part in self.parts.values() for shard in part)
        if found != list(range(shards)):
            raise StoreError(
                f"the parts of {self.folder.root} hold {len(found)} shards where the corpus has "
                f"{shards}; delete {self.folder.parts} to start again"
            )
