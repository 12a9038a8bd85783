"""Workers as Ray actors, on this machine or on a cluster. The only file that imports ray."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ffmem.errors import FfmemError, ScanError
from ffmem.execution.executor import (
    Cluster,
    Job,
    JobAnswer,
    JobQueue,
    Resources,
    WorkerFactories,
    WorkerFactory,
)

# Before ray is imported: no reports to its makers, no advice about GPUs that are not there.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray  # noqa: E402
from ray.exceptions import RayError, RayTaskError  # noqa: E402

AHEAD = 2  # jobs a worker has: one under way, one being made ready
JOB_TRIES = 3  # workers that may be lost over one job
START = 900.0  # seconds until one worker at least must have started
LOOK = 5.0  # seconds between looks at the clock


class Actor:
    """A worker in a process of its own."""

    def start(self, make: WorkerFactory, means: Resources) -> None:
        """Make the worker; not in `__init__`, whose errors Ray passes on as text only."""
        os.environ["RAYON_NUM_THREADS"] = str(means.cpus)  # the tokenizer's threads
        self._worker = make(means)

    def do(self, job: Any) -> JobAnswer:
        """Do a job."""
        return self._worker.do(job)

    def settle(self) -> JobAnswer:
        """Make safe whatever is not."""
        return self._worker.settle()


@dataclass(frozen=True)
class SubmittedJob:
    """A job in Ray's object store, which puts on disk what does not fit in memory."""

    number: int
    label: str
    job: Any


@dataclass
class WorkerSlot:
    """One worker's place, as seen from the driver."""

    number: int
    actor: Any
    started: bool = False
    calls: dict[Any, SubmittedJob | None] = field(default_factory=dict)  # under way, by its answer
    held: dict[int, SubmittedJob] = field(default_factory=dict)  # given and not settled


class RayExecutor:
    """Runs jobs on Ray actors; use it as a context manager.

    Each worker has at most two jobs at a time, so a fast reader cannot fill memory.
    """

    def __init__(self, cluster: Cluster, hire: WorkerFactories) -> None:
        self._cluster, self._hire = cluster, hire
        self._seats: dict[int, WorkerSlot] = {}
        self._again: deque[SubmittedJob] = deque()  # jobs of lost workers
        self._tries: Counter[int] = Counter()
        self._bad_starts = 0
        self._trouble: FfmemError | None = None

    def __enter__(self) -> RayExecutor:
        self._connected = not ray.is_initialized()
        if self._connected:
            connect(self._cluster)
        workers, self._means = self._cluster.share(ray.cluster_resources())
        for number in range(workers):
            self._seat(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for seat in self._seats.values():
            ray.kill(seat.actor)
        self._seats = {}
        if self._connected:
            with same_handler():
                ray.shutdown()

    def run(self, jobs: Iterable[Job], patience: float | None = None) -> Iterator[JobAnswer]:
        """Give the jobs to workers as they have room; yield all answers."""
        self._tries.clear()
        taken = JobQueue(jobs if patience is None else ())
        until = time.monotonic() + patience if patience is not None else float("inf")
        while time.monotonic() < until:
            stopping = self._trouble is not None or patience is not None
            more = not stopping and self._give(taken)
            if not more:
                self._settle_idle()
            if not more and not any(seat.started and seat.calls for seat in self._seats.values()):
                break
            yield from self._answers(min(LOOK, until - time.monotonic()))
        if self._trouble is not None or taken.error is not None:
            raise self._trouble or taken.error  # type: ignore[misc]

    def _give(self, taken: JobQueue) -> bool:
        """Fill the workers' room; False when there is no job left to give."""
        for seat in self._seats.values():
            while self._has_room(seat):
                given = self._again.popleft() if self._again else put(taken.next())
                if given is None:
                    return False
                seat.held[given.number] = given
                seat.calls[seat.actor.do.remote(given.job)] = given
        return bool(self._again) or not taken.ended

    def _has_room(self, seat: WorkerSlot) -> bool:
        """Whether a worker may have the next job; one that lost a worker before goes alone.

        So it is known which job is to blame.
        """
        if not seat.started or len(seat.calls) >= AHEAD:
            return False
        suspect = self._again and self._again[0].number in self._tries
        alone = any(given and given.number in self._tries for given in seat.calls.values())
        return not seat.calls or not (suspect or alone)

    def _settle_idle(self) -> None:
        for seat in self._seats.values():
            if seat.started and seat.held and not seat.calls:
                seat.calls[seat.actor.settle.remote()] = None

    def _answers(self, wait: float) -> Iterator[JobAnswer]:
        calls = {call: seat for seat in self._seats.values() for call in seat.calls}
        answered, _ = ray.wait(list(calls), num_returns=1, timeout=max(wait, 0.0))
        for call in answered:
            seat = calls[call]
            given = seat.calls.pop(call)
            try:
                done = ray.get(call)
            except RayError as error:
                self._lose(seat, given, error)
                continue
            if not seat.started:
                seat.started = True
                continue
            for number in done.settled:
                seat.held.pop(number, None)
            yield done
        if not any(seat.started for seat in self._seats.values()):
            self._refuse_to_wait()

    def _lose(self, seat: WorkerSlot, given: SubmittedJob | None, error: RayError) -> None:
        """Give a lost worker's jobs to others, and its place to a new one."""
        ray.kill(seat.actor)
        raised = error.cause if isinstance(error, RayTaskError) else None
        blamed = [given] if given else [g for g in seat.calls.values() if g]
        if raised is None:  # the process is gone: anything that was under way may be why
            blamed += [g for g in seat.calls.values() if g and g not in blamed]
        blamed = blamed or list(seat.held.values())  # lost while it settled
        self._tries.update(g.number for g in blamed)
        self._bad_starts += not seat.started
        self._again.extend(g for _, g in sorted(seat.held.items()))
        self._trouble = self._trouble or self._verdict(seat, blamed, raised or error)
        if self._trouble is None:
            self._seat(seat.number)
        else:
            del self._seats[seat.number]

    def _verdict(
        self, seat: WorkerSlot, blamed: list[SubmittedJob], error: BaseException
    ) -> FfmemError | None:
        """The error that ends the run, or None while it is worth another try."""
        if isinstance(error, FfmemError):
            return type(error)(f"{blamed[0].label}: {error}") if blamed else error
        worst = max(blamed, key=lambda g: self._tries[g.number], default=None)
        reason = " ".join(str(error).split())[:400]
        if not isinstance(error, RayError):
            reason = f"{type(error).__name__}: {reason}"
        if not seat.started and self._bad_starts >= JOB_TRIES:
            return ScanError(f"workers do not start ({reason}); fix that and try again")
        if worst is None or self._tries[worst.number] < JOB_TRIES:
            return None
        return ScanError(
            f"{worst.label} failed {JOB_TRIES} times; the last time: {reason}; what was "
            "finished is saved, so fix that and run the same command again"
        )

    def _seat(self, number: int) -> None:
        actor = (
            ray.remote(Actor)
            .options(
                num_cpus=self._means.cpus,
                num_gpus=self._means.gpus,
                max_concurrency=AHEAD,
                max_restarts=0,  # a new worker must begin where the lost one was saved
            )
            .remote()
        )
        started = actor.start.remote(self._hire(number), self._means)
        self._seats[number] = WorkerSlot(number, actor, calls={started: None})
        self._waiting_since = time.monotonic()

    def _refuse_to_wait(self) -> None:
        if time.monotonic() - self._waiting_since > START and self._trouble is None:
            self._trouble = ScanError(
                f"no worker could start in {START / 60:.0f} minutes: each asks for "
                f"{self._means.cpus} CPUs and {self._means.gpus:g} GPUs of a cluster that has "
                f"{ray.cluster_resources()}; ask for less"
            )


def put(job: Job | None) -> SubmittedJob | None:
    """Keep a job where every worker can fetch it."""
    return None if job is None else SubmittedJob(job.number, job.label, ray.put(job))


def connect(cluster: Cluster) -> None:
    """Join the cluster at an address, or the one at hand, or start one on this machine."""
    address, options = cluster.address, dict[str, Any]()
    if address == "local":  # a CPU for each worker, also where there are fewer
        options = {"num_cpus": max(os.cpu_count() or 1, cluster.workers or 1)}
        options |= {"include_dashboard": False}
    try:
        with same_handler():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ScanError(
            f"there is no Ray cluster at {address or 'hand'} ({reason}); start one with "
            "`ray start --head`, or leave the address out"
        ) from error


@contextmanager
def same_handler() -> Iterator[None]:
    """Keep what SIGTERM does: `init` puts a handler in its place, and `shutdown` takes all away."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)
