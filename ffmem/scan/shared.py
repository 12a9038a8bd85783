"""What the layers of one scan share."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import torch

from ffmem.scan.rows import Batch, Rows
from ffmem.scan.settings import ScanSettings
from ffmem.scan.sweep import Sweeper

HELD = 2  # launches whose coefficients are kept: enough for a GPU to stay busy while the host waits


class Launch(Protocol):
    """Work handed to a GPU, whose outcome somebody must look at."""

    def settle(self) -> None:
        """Wait for the outcome and act on it; a second call does nothing."""


class Shared:
    """The rows of the latest batch, a buffer, and what a GPU has not been seen to finish.

    All layers read the same batch one after the other, so its rows are worked out once.
    """

    def __init__(self, settings: ScanSettings) -> None:
        self.settings = settings
        self._batch: Batch | None = None
        self._rows: dict[torch.device, Rows] = {}
        self._sweepers: dict[tuple[int, torch.device], Sweeper] = {}
        self._launches: deque[Launch] = deque()

    def rows(self, batch: Batch, device: torch.device) -> Rows:
        """The batch's rows on a device."""
        if self._batch is not batch:
            self._batch = batch
            self._rows = {torch.device("cpu"): Rows.of(batch, self.settings)}
        if device not in self._rows:
            self._rows[device] = self._rows[torch.device("cpu")].to(device)
        return self._rows[device]

    def sweeper(self, memories: int, device: torch.device) -> Sweeper:
        """The buffer for layers of this size."""
        key = (memories, device)
        if key not in self._sweepers:
            self._sweepers[key] = Sweeper(memories, device)
        return self._sweepers[key]

    def look_later(self, launch: Launch) -> None:
        """Settle this launch when two more have followed it.

        By then the host waits, if at all, for work the GPU has behind it, and never lets it run
        out of work; a wait right after the launch would.
        """
        self._launches.append(launch)
        while len(self._launches) > HELD:
            self._launches.popleft().settle()
