"""The batch's rows and the queue of GPU launches, shared by all layers of a scan."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from ffmem.scan.batch_rows import BatchRows, PaddedBatch
from ffmem.scan.passes.torch_pass import TorchPass
from ffmem.scan.settings import ScanSettings

if TYPE_CHECKING:
    from ffmem.scan.passes.triton_pass import CellLists

LAUNCHES_AHEAD = (
    2  # launches not looked at yet, at least: a GPU stays busy while the host waits for one
)
MEMORY_PART = 16  # more are held while their coefficients take this part of the GPU's memory


class Launch(Protocol):
    """Work handed to a GPU, whose outcome somebody must look at."""

    @property
    def coefficients(self) -> Tensor:
        """What the work reads, and what looking at its outcome may need again."""

    def settle(self) -> None:
        """Wait for the outcome and act on it; a second call does nothing."""


class LaunchQueue:
    """The rows of the latest batch, a buffer, and what a GPU has not been seen to finish.

    All layers read the same batch one after the other, so its rows are worked out once.
    """

    def __init__(self, settings: ScanSettings) -> None:
        self.settings = settings
        self._batch: PaddedBatch | None = None
        self._rows: dict[torch.device, BatchRows] = {}
        self._passes: dict[tuple[int, torch.device], TorchPass] = {}
        self._lists: dict[tuple[int, torch.device], CellLists] = {}
        self._launches: deque[Launch] = deque()

    def rows(self, batch: PaddedBatch, device: torch.device) -> BatchRows:
        """The batch's rows on a device."""
        if self._batch is not batch:
            self._batch = batch
            self._rows = {torch.device("cpu"): BatchRows.of(batch, self.settings)}
        if device not in self._rows:
            self._rows[device] = self._rows[torch.device("cpu")].to(device)
        return self._rows[device]

    def torch_pass(self, memories: int, device: torch.device) -> TorchPass:
        """The buffer for layers of this size."""
        key = (memories, device)
        if key not in self._passes:
            self._passes[key] = TorchPass(memories, device)
        return self._passes[key]

    def lists(self, cells: int, device: torch.device) -> CellLists:
        """What waits to be folded in, for layers of so many cells."""
        from ffmem.scan.passes.triton_pass import CellLists  # slow to import, and only on a GPU

        key = (cells, device)
        if key not in self._lists:
            others = [lists for (_, place), lists in self._lists.items() if place == device]
            self._lists[key] = CellLists(cells, device, next(iter(others), None))
        return self._lists[key]

    def enqueue(self, launch: Launch) -> None:
        """Settle this launch when some more have followed it.

        By then the host waits, if at all, for work the GPU has behind it, and never lets it run
        out of work; a wait right after the launch would. The more launches are held the longer
        the host may be busy with something else, such as the next batch.
        """
        m = launch.coefficients
        room = _memory(m.device) // MEMORY_PART // max(m.numel() * m.element_size(), 1)
        self._launches.append(launch)
        while len(self._launches) > max(LAUNCHES_AHEAD, room):
            self._launches.popleft().settle()

    def settle(self) -> None:
        """Look at all that is under way, which lets go of its coefficients."""
        while self._launches:
            self._launches.popleft().settle()


@cache
def _memory(device: torch.device) -> int:
    """Bytes of a GPU; none elsewhere, where nothing runs ahead."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).total_memory)
