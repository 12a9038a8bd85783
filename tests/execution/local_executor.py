"""The simplest executor: what every scan with workers must give, without processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ffmem.execution.executor import Job, JobAnswer, JobQueue, Resources, WorkerFactories


class LocalExecutor:
    """One worker in this process."""

    def __init__(self, hire: WorkerFactories) -> None:
        self._worker = hire(0)(Resources())

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def run(self, jobs: Iterable[Job], patience: float | None = None) -> Iterator[JobAnswer]:
        """Do one job after the other."""
        taken = JobQueue(jobs if patience is None else ())
        while (job := taken.next()) is not None:
            yield self._worker.do(job)
        yield self._worker.settle()
        if taken.error is not None:
            raise taken.error
