"""One of several processes that scan a corpus together: holds the model, reads shards, saves.

The messages between the driver of a distributed scan and its workers come first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import Shard
from ffmem.corpus.tokeniser_processes import TokeniserProcess
from ffmem.errors import StoreError
from ffmem.execution.checkpoint import (
    Checkpoint,
    ScanProgress,
    ShardCounts,
    read_checkpoint,
    save_checkpoint,
)
from ffmem.execution.executor import JobAnswer, Resources
from ffmem.execution.finish import FinishedScan, write_store
from ffmem.execution.plan import (
    ScanPlan,
    refuse_other_checkpoint,
    scan_key,
    sentence_settings,
    token_budget,
)
from ffmem.execution.ranked_values import rank_values
from ffmem.execution.ready_shards import ReadyShards, shard_batches
from ffmem.execution.shard_reader import (
    SHARDS_PER_SAVE,
    ShardReader,
    future_of,
    sentence_numbers,
)
from ffmem.execution.single_process import new_checkpoint, pause_after, start_progress
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.scanner import Scanner
from ffmem.store.folder import StudyFolder
from ffmem.store.kept_sentences import KeptSentences
from ffmem.store.manifest import ScanKey


@dataclass(frozen=True)
class ModelChoice:
    """A model by name, for processes that load it themselves."""

    name: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    trust_remote_code: bool = False
    tokenizer: str | None = None  # in place of the model's own
    devices: tuple[str, ...] = ()  # one for each worker; empty: whatever a worker has

    @classmethod
    def of(cls, model: LanguageModel) -> ModelChoice:
        """The choice that gives this model again, in the same precision."""
        own_code = type(model.model).__module__.startswith("transformers_modules")
        dtype = str(model.dtype).removeprefix("torch.")
        return cls(
            model.name,
            model.revision,
            dtype,
            trust_remote_code=own_code,
            tokenizer=model.tokenizer_name,
        )

    def on_worker(self, number: int) -> ModelChoice:
        """The same for one worker, on the device that is its own."""
        if not self.devices:
            return self
        return replace(self, device=self.devices[number % len(self.devices)], devices=())

    def load(self, means: Resources) -> LanguageModel:
        """Load the model on what a worker has: its GPU, all of its GPUs, or the CPU."""
        device = self.device
        if device == "auto" and means.cpus is not None:
            device = "cpu" if not means.gpus else "all" if means.gpus > 1 else "cuda"
        return load(
            self.name,
            revision=self.revision,
            dtype=self.dtype,
            device=device,
            trust_remote_code=self.trust_remote_code,
            tokenizer=self.tokenizer,
        )


@dataclass(frozen=True)
class WorkerConfig:
    """Everything that a new worker needs to start."""

    model: ModelChoice
    plan: ScanPlan
    corpus_digest: str
    folder: StudyFolder
    worker: int
    name: str  # of its files; no other worker has it
    begins_with: str | None = None  # the part that it takes over
    seconds: float = 0.0  # that the scan has taken before


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model for the driver, which does not load it."""

    key: ScanKey
    tokenizer: Any
    start: ScanProgress  # how batches are made


@dataclass(frozen=True)
class WorkerReport:
    """A worker's progress: shards it read, and the part that it saved, if any."""

    worker: int
    read: dict[int, ShardCounts]
    part: str | None = None
    serial: int = 0  # of the part among the worker's
    shards: dict[int, ShardCounts] | None = None  # of the part


@dataclass(frozen=True)
class Describe:
    """Say what the model is."""

    number: int = 0
    label: str = "the model's description"


@dataclass(frozen=True)
class Read:
    """Read some shards in a row, or their first sentences; batches are made of all of them."""

    shards: tuple[Shard, ...]
    sentences: int | None = None

    @property
    def number(self) -> int:
        """The number of the first shard."""
        return self.shards[0].number

    @property
    def label(self) -> str:
        """The job's name in messages."""
        if len(self.shards) == 1:
            return f"shard {self.number}"
        return f"shards {self.number} to {self.shards[-1].number}"


@dataclass(frozen=True)
class Merge:
    """Make one part of two."""

    number: int
    parts: tuple[str, str]
    into: str

    @property
    def label(self) -> str:
        """The job's name in messages."""
        return f"the merge of {' and '.join(self.parts)}"


@dataclass(frozen=True)
class Finish:
    """Write the store from the part that holds everything."""

    part: str
    progress: ScanProgress
    number: int = 0
    label: str = "the writing of the store"


@dataclass(frozen=True)
class RankValues:
    """Rank the values of the store that was written."""

    number: int = 0
    label: str = "the ranking of the values"


class ScanWorker:
    """Reads shards into one running state, which it saves now and then as a part.

    The state goes on from part to part, so it is as quick as a scan in one process, and there
    are never more parts than workers. Two jobs may run at once: one is made ready while the
    other is read.
    """

    def __init__(self, brief: WorkerConfig, means: Resources) -> None:
        self._brief, self._means = brief, means
        self._use_threads()
        self._model = brief.model.load(means).with_experts(brief.plan.experts)
        self._plan = replace(
            brief.plan, settings=replace(brief.plan.settings, signed=self._model.gated)
        )
        self.key = scan_key(self._model, self._plan, brief.corpus_digest)
        start = self._beginning()
        self._budget = start.progress.budget
        scanner = Scanner(self._model, self._plan.settings, self._plan.layers).__enter__()
        self._reader = ShardReader(scanner, start.state, start.kept)
        self._shards = dict(start.shards)
        self._unsaved: list[int] = []
        self._serial = 0
        self._began = time.monotonic()
        self._next_save = self._began + pause_after(0.0)
        self._turn = threading.Lock()
        self._tokenise = tokeniser(self._model, sentence_settings(self._model, self._plan))

    def _use_threads(self) -> None:
        """Compute with as many threads as there are CPUs; every thread must be told anew."""
        if self._means.cpus is not None:
            torch.set_num_threads(self._means.cpus)

    def _beginning(self) -> Checkpoint:
        name = self._brief.begins_with
        if name is None:
            return new_checkpoint(self.key, token_budget(self._model, self._plan))
        found = read_checkpoint(self._brief.folder.part(name))
        refuse_other_checkpoint(self._brief.folder.root, found.key, self.key)
        return found

    def do(self, job: Describe | Read | Merge | Finish | RankValues) -> JobAnswer:
        """Do a job."""
        self._use_threads()
        match job:
            case Read():
                return self._read(job)
            case Merge():
                return JobAnswer((job.number,), self._merge(job))
            case Finish():
                self._finish(job)
                return JobAnswer((job.number,))
            case RankValues():
                rank_values(self._model, self._brief.folder)
                return JobAnswer((job.number,))
            case Describe():
                return JobAnswer((job.number,), self._describe())

    def settle(self) -> JobAnswer:
        """Save what is not saved."""
        self._use_threads()
        with self._turn:
            return self._save({})

    def _describe(self) -> ModelFacts:
        return ModelFacts(self.key, self._model.tokenizer, start_progress(self._budget))

    def _read(self, job: Read) -> JobAnswer:
        parts = first_sentences([self._tokenise(shard) for shard in job.shards], job.sentences)
        sentences = Sentences.join(parts)
        work = ReadyShards(sentences, shard_batches(self._model, sentences, self._budget))
        with self._turn:
            for _ in self._reader.read(work):
                pass
            report = {
                shard.number: ShardCounts(len(part), len(part.tokens), int(part.cut.sum()))
                for shard, part in zip(job.shards, parts, strict=True)
            }
            self._shards |= report
            self._unsaved.append(job.number)
            held = len(self._unsaved) * len(job.shards)
            due = time.monotonic() > self._next_save or held >= SHARDS_PER_SAVE
            return self._save(report) if due else JobAnswer((), self._report(report))

    def _save(self, read: dict[int, ShardCounts]) -> JobAnswer:
        """Save, and say which shards are safe from now on."""
        if not self._unsaved:
            return JobAnswer((), self._report(read))
        began = time.monotonic()
        self._serial += 1
        name = f"{self._brief.name}-{self._serial}"
        state, progress = (
            self._reader.snapshot(),
            ScanProgress(
                shards=len(self._shards),
                budget=self._budget,
                seconds=self._brief.seconds + began - self._began,
            ),
        )
        found = Checkpoint(self.key, progress, state, self._reader.kept_sentences, self._shards)
        save_checkpoint(self._brief.folder.part(name), found)
        self._next_save = time.monotonic() + pause_after(time.monotonic() - began)
        settled, self._unsaved = tuple(self._unsaved), []
        report = self._report(read)
        return JobAnswer(
            settled,
            replace(report, part=name, serial=self._serial, shards=dict(self._shards)),
        )

    def _report(self, read: dict[int, ShardCounts]) -> WorkerReport:
        return WorkerReport(self._brief.worker, read)

    def _merge(self, job: Merge) -> Merge:
        one, other = (read_checkpoint(self._brief.folder.part(name)) for name in job.parts)
        save_checkpoint(self._brief.folder.part(job.into), _merge_parts(one, other))
        return job

    def _finish(self, job: Finish) -> None:
        found = read_checkpoint(self._brief.folder.part(job.part))
        write_store(
            self._model,
            FinishedScan(self.key, found.state, future_of(found.kept), job.progress),
            self._brief.folder,
        )


def first_sentences(parts: list[Sentences], most: int | None) -> list[Sentences]:
    """The first sentences of some shards in a row, shard by shard; all where there is no limit."""
    found = []
    for part in parts:
        found.append(part if most is None else part.first(most))
        most = None if most is None else most - len(found[-1])
    return found


def tokeniser(model: LanguageModel, settings: SentenceSettings) -> Callable[[Shard], Sentences]:
    """What makes sentences of a shard: for a GPU, a process that does not hold up its feeding."""
    if model.device.type == "cuda" and not settings.chat:
        with suppress(Exception):  # a tokenizer that cannot be written down stays in this process
            return TokeniserProcess(model.tokenizer, settings).tokenise
    return lambda shard: tokenise(shard, model.tokenizer, settings)


def _merge_parts(one: Checkpoint, other: Checkpoint) -> Checkpoint:
    """What one worker would have saved after reading the shards of both."""
    both = set(one.shards) & set(other.shards)
    if both or one.key != other.key:
        raise StoreError(f"two parts of the scan share shard {min(both, default=-1)}; scan again")
    state = {number: one.state[number].merge(other.state[number]) for number in one.state}
    kept = KeptSentences.join([one.kept, other.kept]).only(sentence_numbers(state))
    seconds = max(one.progress.seconds, other.progress.seconds)
    progress = replace(one.progress, shards=len(one.shards) + len(other.shards), seconds=seconds)
    shards = {**one.shards, **other.shards}
    return replace(one, progress=progress, state=state, kept=kept, shards=shards)
