"""Searches for patterns that pages start: one at a time, with progress; what they find is kept."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ffmem.address import Address
from ffmem.errors import FfmemError, LiveError
from ffmem.steps import listen, steps
from ffmem.store.scan_store import ScanStore

if TYPE_CHECKING:
    from ffmem.analyses.patterns.findings import KeyFinding, PatternFinder

SearchState = Literal["waiting", "running", "done", "failed", "stopped"]
KEYS_PER_SAVE = 20  # keys
MOST_WAITING = 8  # searches
MOST_SEARCHES = 200
Work = Callable[["PatternFinder", Address], "KeyFinding"]


@dataclass(frozen=True)
class PatternJob:
    """A search for patterns: of which keys, how far it is, and what came of it."""

    number: int
    about: str
    state: SearchState
    keys: int
    doing: str = ""
    share: float = 0.0
    done: int = 0  # keys
    patterns: int = 0
    error: str = ""

    @property
    def busy(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ("waiting", "running")


class _Stop(Exception):  # noqa: N818 - no error
    """Ends a search that somebody stopped."""


class PatternJobs:
    """All searches of one explorer; what they find is written to the study as they go."""

    def __init__(self, store: ScanStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._jobs: dict[int, PatternJob] = {}
        self._queue: queue.SimpleQueue[tuple[int, tuple[Address, ...], Work]] = queue.SimpleQueue()
        self._finder: PatternFinder | None = None
        self._thread: threading.Thread | None = None

    def start(self, keys: Sequence[Address], about: str, work: Work | None = None) -> PatternJob:
        """Put a search into the queue; the same one that still waits or runs is not put twice."""
        with self._lock:
            busy = [job for job in self._jobs.values() if job.busy]
            for job in busy:
                if job.about == about:
                    return job
            if len(busy) >= MOST_WAITING:
                raise LiveError("other searches for patterns are waiting; ask again in a minute")
            job = PatternJob(max(self._jobs, default=0) + 1, about, "waiting", len(keys))
            self._jobs[job.number] = job
            for old in list(self._jobs)[:-MOST_SEARCHES]:
                del self._jobs[old]
            if self._thread is None:  # a daemon: what it writes is whole, so it may just end
                self._thread = threading.Thread(target=self._run_all, daemon=True)
                self._thread.start()
        self._queue.put((job.number, tuple(keys), work or by_rule))
        return job

    def job(self, number: int) -> PatternJob | None:
        """How far a search is."""
        return self._jobs.get(number)

    def stop(self, number: int | None = None) -> None:
        """End a search, or all, before the next key; what was found stays."""
        with self._lock:
            for job in list(self._jobs.values()):
                if job.busy and number in (None, job.number):
                    self._jobs[job.number] = replace(job, state="stopped")

    def _set(self, number: int, **values: object) -> None:
        with self._lock:
            job = self._jobs[number]
            if job.state == "stopped":
                raise _Stop
            self._jobs[number] = replace(job, **values)  # type: ignore[arg-type]

    def _run_all(self) -> None:
        while True:
            number, keys, work = self._queue.get()
            try:
                self._run(number, keys, work)
            except _Stop:
                continue

    def _run(self, number: int, keys: tuple[Address, ...], work: Work) -> None:
        from ffmem.analyses.patterns.findings import PatternFinder  # here: torch imports slowly

        self._set(number, state="running", doing="learning what is common in the text")
        try:
            self._finder = self._finder or PatternFinder(self._store)
            with listen(lambda what, share: self._set(number, doing=what, share=share)):
                self._find(number, keys, work, self._finder)
        except _Stop:
            raise
        except FfmemError as error:
            self._set(number, state="failed", error=str(error))
        except Exception as error:  # a bug must not end the thread that all searches run in
            self._set(number, state="failed", error=f"{type(error).__name__}: {error}")
        else:
            self._set(number, state="done", share=1.0, doing="")

    def _find(
        self, number: int, keys: tuple[Address, ...], work: Work, finder: PatternFinder
    ) -> None:
        from ffmem.analyses.patterns.findings import add_findings

        folder, scan = self._store.folder, self._store.manifest.key.digest
        new, patterns = list["KeyFinding"](), 0
        try:
            for place, key in enumerate(steps(keys, "looking at triggers"), 1):
                new.append(work(finder, key))
                patterns += len(new[-1].patterns)
                if len(new) == KEYS_PER_SAVE:
                    add_findings(folder, scan, new)
                    new = []
                self._set(number, done=place, patterns=patterns, share=place / len(keys))
        finally:  # also where somebody stops it
            if new:
                add_findings(folder, scan, new)


def by_rule(finder: PatternFinder, key: Address) -> KeyFinding:
    """The patterns that the rules find."""
    return finder.by_rule(key)
