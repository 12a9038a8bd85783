"""A worker of a scan that meets faults; in a module that Ray's processes can import."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator

from ffmem.corpus.batches import Batch
from ffmem.execution.executor import JobAnswer
from ffmem.execution.ready_shards import ReadyShards
from ffmem.execution.worker import Read, ScanWorker


class FaultyWorker(ScanWorker):
    """Saves after every second shard; a file `faults/kill-3` strikes it once, inside shard 3."""

    @property
    def _next_save(self) -> float:
        return 0.0 if len(self._unsaved) >= 2 else float("inf")

    @_next_save.setter
    def _next_save(self, _time: float) -> None:
        """The number of shards decides, not the clock."""

    def _read(self, job: Read) -> JobAnswer:
        faults = sorted((self._brief.folder.root / "faults").glob(f"*-{job.number}"))
        if faults:
            inner = self._reader.read

            def read(work: ReadyShards) -> Iterator[Batch]:
                for batch in inner(work):
                    yield batch
                    faults[0].unlink()
                    strike(faults[0].name.split("-")[0])

            self._reader.read = read  # type: ignore[method-assign]
        return super()._read(job)


class StuckWorker(FaultyWorker):
    """Reads two shards, which are saved, and never ends the third."""

    def _read(self, job: Read) -> JobAnswer:
        while job.number >= 2:
            time.sleep(60)
        return super()._read(job)


def strike(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115
    room = pages * os.sysconf("SC_PAGE_SIZE") + 2**26
    resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    bytearray(2**30)  # more than there is
