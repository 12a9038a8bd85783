"""Which parts of a scan count: each shard is in one of them, whatever was lost on the way."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from ffmem.errors import StoreError
from ffmem.execution.messages import WorkerReport
from ffmem.store.checkpoint import Progress, ShardCounts, read_notes
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import ScanKey


@dataclass
class Ledger:
    """The parts that count, by name, each with its shards; no shard is in two of them.

    A part counts from the moment the driver hears of it. What a lost worker wrote and nobody
    heard of is never used, so its shards are read again. A new driver takes from the folder
    parts that share no shard, the largest first.
    """

    folder: StudyFolder
    digest: str | None = None  # of the scan's key
    key: ScanKey | None = None
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
            if ledger.digest not in (None, notes.digest):
                raise StoreError(
                    f"{folder.parts} holds parts of two scans; delete it to start again"
                )
            if ledger.safe_shards.isdisjoint(notes.shards):
                ledger.digest, ledger.key = notes.digest, notes.key
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

    def progress(self, seconds: float) -> Progress:
        """What has been read so far by all workers together."""
        counts = list(self.read.values())
        return Progress(
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
