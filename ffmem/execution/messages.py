"""Messages between the driver of a distributed scan and its workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ffmem.corpus.shards import Shard
from ffmem.execution.plan import ScanPlan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scaleout.executor import Resources
from ffmem.store.checkpoint import Progress, ShardCounts
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import ScanKey


@dataclass(frozen=True)
class ModelChoice:
    """A model by name, for processes that load it themselves."""

    name: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    trust_remote_code: bool = False
    devices: tuple[str, ...] = ()  # one for each worker; empty: whatever a worker has

    @classmethod
    def of(cls, model: LanguageModel) -> ModelChoice:
        """The choice that gives this model again, in the same precision."""
        own_code = type(model.model).__module__.startswith("transformers_modules")
        dtype = str(model.dtype).removeprefix("torch.")
        return cls(model.name, model.revision, dtype, trust_remote_code=own_code)

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
        )


@dataclass(frozen=True)
class WorkerConfig:
    """All that a new worker needs to start."""

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
    memories: int
    layers: int
    start: Progress  # how batches are made


@dataclass(frozen=True)
class WorkerReport:
    """A worker's progress: shards it read, and the part that it saved, if any."""

    worker: int
    pid: int
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
    progress: Progress
    number: int = 0
    label: str = "the writing of the store"
