"""The seam between what is done and where: jobs go to workers, and settled results come back.

A worker may hold its results back for a while (a scan's state is too large to be written for
every shard), so it says of which jobs the outcome is safe. A job that a lost worker had not
settled is done again by another, and only answers that were received count: so nothing is lost,
and what builds on those answers alone counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ffmem.errors import ScanError


class Job(Protocol):
    """A piece of work; it may go to another process, so it must survive pickling."""

    @property
    def number(self) -> int:
        """No other job of the same run has it."""

    @property
    def label(self) -> str:
        """Its name in messages: `shard 12`."""


@dataclass(frozen=True)
class JobAnswer:
    """A worker's answer: the jobs that are settled by it, and anything else it has to say."""

    settled: tuple[int, ...]
    report: Any = None


class Worker(Protocol):
    """Does jobs, up to two at once, and settles each in the answer to it or to a later one.

    After an exception it is not used again, because a job may be half done in it.
    """

    def do(self, job: Any) -> JobAnswer:
        """Do a job."""

    def settle(self) -> JobAnswer:
        """Make safe whatever is not."""


@dataclass(frozen=True)
class Resources:
    """What a worker has to itself; no number of CPUs means that it shares those there are."""

    cpus: int | None = None
    gpus: float = 0.0


# WorkerFactories is called here, for each worker from number 0 on and again in the place of a lost
# one; the WorkerFactory that it returns is called where the worker will live.
WorkerFactory = Callable[[Resources], Worker]
WorkerFactories = Callable[[int], WorkerFactory]


class Executor(Protocol):
    """Runs jobs on workers."""

    def run(self, jobs: Iterable[Job], patience: float | None = None) -> Iterator[JobAnswer]:
        """Give the jobs to workers, taking them one by one as there is room; yield all answers.

        At the end all jobs are settled. An error is raised after what else is under way has been
        settled. With `patience` no job is begun: what is under way has that many seconds to settle.
        """


class JobQueue:
    """Jobs taken one by one; an error among them is kept for later."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self.ended = False
        self.error: Exception | None = None

    def next(self) -> Job | None:
        """The next job, None where there is no more."""
        if not self.ended:
            try:
                return next(self._jobs)
            except StopIteration:
                pass
            except Exception as error:
                self.error = error
        self.ended = True
        return None


@dataclass(frozen=True)
class Cluster:
    """Where Ray runs and how many workers it gets; None means as many as fit.

    No `address` takes the cluster that this machine belongs to, or starts one of its own; `local`
    always starts one. With more than one GPU a worker spreads its model over them. `devices` names
    the device of each worker, for those of this machine.
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    cpus_per_worker: int | None = None
    devices: tuple[str, ...] = ()

    @classmethod
    def on_devices(cls, devices: tuple[str, ...]) -> Cluster:
        """A worker for each of these devices of this machine."""
        return cls("local", len(devices), gpus_per_worker=0, devices=devices)

    def __post_init__(self) -> None:
        wanted = (self.workers, self.gpus_per_worker, self.cpus_per_worker)
        if self.workers == 0 or any(number is not None and number < 0 for number in wanted):
            raise ScanError(
                "there must be at least one worker, and no number below 0; fix the options"
            )

    def share(self, resources: Mapping[str, float]) -> tuple[int, Resources]:
        """The number of workers, and what each has: a GPU where there are any, else CPUs."""
        all_gpus, all_cpus = resources.get("GPU", 0.0), int(resources.get("CPU", 1))
        gpus = self.gpus_per_worker
        if gpus is None:
            gpus = 1.0 if all_gpus else 0.0
        fit = int(all_gpus // gpus) if gpus else all_cpus // (self.cpus_per_worker or 1)
        workers = self.workers or max(1, fit)
        cpus = self.cpus_per_worker or max(1, all_cpus // workers)
        return workers, Resources(cpus, gpus)
