"""How many workers, and what each of them gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ffmem.errors import ScanError
from ffmem.scaleout.executor import Means


@dataclass(frozen=True)
class Cluster:
    """Where Ray runs and how many workers it gets; None means as many as fit.

    No `address` takes the cluster that this machine belongs to, or starts one of its own. With
    more than one GPU a worker spreads its model over them.
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    cpus_per_worker: int | None = None

    def __post_init__(self) -> None:
        wanted = (self.workers, self.gpus_per_worker, self.cpus_per_worker)
        if self.workers == 0 or any(number is not None and number < 0 for number in wanted):
            raise ScanError(
                "there must be at least one worker, and no number below 0; mend the options"
            )

    def share(self, resources: Mapping[str, float]) -> tuple[int, Means]:
        """The number of workers, and what each has: a GPU where there are any, else CPUs."""
        all_gpus, all_cpus = resources.get("GPU", 0.0), int(resources.get("CPU", 1))
        gpus = self.gpus_per_worker
        if gpus is None:
            gpus = 1.0 if all_gpus else 0.0
        fit = int(all_gpus // gpus) if gpus else all_cpus // (self.cpus_per_worker or 1)
        workers = self.workers or max(1, fit)
        cpus = self.cpus_per_worker or max(1, all_cpus // workers)
        return workers, Means(cpus, gpus)
