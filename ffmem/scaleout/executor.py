"""The seam between what is done and where: jobs go to workers, and settled results come back.

A worker may hold its results back for a while (a scan's state is too large to be written for
every shard), so it says of which jobs the outcome is safe. A job that a lost worker had not
settled is done again by another, and only answers that were received count: so nothing is lost,
and what builds on those answers alone counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


class Job(Protocol):
    """A piece of work; it may go to another process, so it must survive pickling."""

    @property
    def number(self) -> int:
        """No other job of the same run has it."""

    @property
    def label(self) -> str:
        """What a message calls it: `shard 12`."""


@dataclass(frozen=True)
class Done:
    """A worker's answer: the jobs that are settled by it, and anything else it has to say."""

    settled: tuple[int, ...]
    report: Any = None


class Worker(Protocol):
    """Does jobs, up to two at once, and settles each in the answer to it or to a later one.

    After an exception it is not used again, because a job may be half done in it.
    """

    def do(self, job: Any) -> Done:
        """Do a job."""

    def settle(self) -> Done:
        """Make safe whatever is not."""


@dataclass(frozen=True)
class Means:
    """What a worker has to itself; no number of CPUs means that it shares those there are."""

    cpus: int | None = None
    gpus: float = 0.0


# Hire is called here, for each worker from number 0 on and again in the place of a lost one; what
# it returns is called where the worker will live.
Make = Callable[[Means], Worker]
Hire = Callable[[int], Make]


class Executor(Protocol):
    """Runs jobs on workers."""

    def run(self, jobs: Iterable[Job], patience: float | None = None) -> Iterator[Done]:
        """Give the jobs to workers, taking them one by one as there is room; yield all answers.

        At the end all jobs are settled. An error is raised after what else is under way has been
        settled. With `patience` no job is begun: what is under way may settle for so many seconds.
        """


class Local:
    """One worker in this process."""

    def __init__(self, hire: Hire) -> None:
        self._worker = hire(0)(Means())

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def run(self, jobs: Iterable[Job], patience: float | None = None) -> Iterator[Done]:
        """Do one job after the other."""
        taken = Taken(jobs if patience is None else ())
        while (job := taken.next()) is not None:
            yield self._worker.do(job)
        yield self._worker.settle()
        if taken.error is not None:
            raise taken.error


class Taken:
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
