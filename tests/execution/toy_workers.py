"""Workers that need no model; in a module of their own so that Ray's processes can import them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from ffmem.errors import CorpusError
from ffmem.execution.executor import JobAnswer, Resources


@dataclass(frozen=True)
class Square:
    """Square a number; `trouble` happens as long as there is a file `marker`, or always."""

    number: int
    trouble: str = ""
    marker: Path | None = None

    @property
    def label(self) -> str:
        return f"square {self.number}"


class Squarer:
    """Settles every third job, or when told to; forgets all when it is lost."""

    def __init__(self, means: Resources) -> None:
        self.means = means
        self._held: list[int] = []

    def do(self, job: Square) -> JobAnswer:
        if job.trouble and (job.marker is None or job.marker.exists()):
            if job.marker is not None:
                job.marker.unlink()
            strike(job.trouble)
        self._held.append(job.number)
        return self.settle() if len(self._held) >= 3 else JobAnswer((), [])

    def settle(self) -> JobAnswer:
        settled, self._held = tuple(self._held), []
        return JobAnswer(settled, [(number, number**2) for number in settled])


def strike(trouble: str) -> None:
    if trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "memory":
        raise MemoryError("no room")
    if trouble == "user":
        raise CorpusError("the file x.txt is broken; fix it")
    time.sleep(float(trouble))


def hire(_number: int) -> type[Squarer]:
    return Squarer
