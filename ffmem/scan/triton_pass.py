"""Candidates of a mixture's experts on a GPU: buffer, counter, and launches to look at later.

Other layers are brought up to date on the GPU itself: see `triton_fold`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
from torch import Tensor

from ffmem.scan.batch_rows import LineTable, Rows
from ffmem.scan.candidates import Candidates
from ffmem.scan.hashing import EMPTY, small_sentences
from ffmem.scan.settings import BINS, LOWEST, ROOM_OF_EXPERTS, ScanSettings
from ffmem.scan.tallies import not_finite
from ffmem.scan.triggers import Thresholds
from ffmem.scan.triton_fold import BLOCK, WARPS
from ffmem.scan.triton_kernels import add_bins_of_lines, find_lines, pass_over_lines

FINDERS, SLOTS = 512, 128  # programs that look positions up, and candidates each takes at once
FINDER_WARPS = 4
SENTENCES = 128  # of a program that reads the lines of an expert


Redo = Callable[[Tensor, Rows], None]


class TritonLaunch:
    """One batch handed to the GPU; keeps its coefficients until the outcome has been seen."""

    def __init__(self, kernel: TritonPass, m: Tensor, rows: Rows, redo: Redo) -> None:
        self._kernel = kernel
        self._work: tuple[Tensor, Rows, Redo] | None = (m, rows, redo)

    @property
    def coefficients(self) -> Tensor:
        """What the kernel reads; nothing once the outcome has been seen."""
        return torch.empty(0) if self._work is None else self._work[0]

    def settle(self) -> None:
        """Wait for the counter; redo the batch if the buffer was too small for it."""
        if self._work is None:
            return
        m, rows, redo = self._work
        self._work = None
        if self._kernel.check_overflow():
            redo(m, rows)


class TritonPass:
    """One layer's buffer of candidates and the counter of what is in it.

    The counter is copied to the host behind each launch and looked at later, so the host never
    waits for a launch it has just made. `found` is the count up to the last launch settled.
    """

    def __init__(self, memories: int, settings: ScanSettings, device: torch.device) -> None:
        cells = settings.cells(memories)
        self.memories = memories
        self.settings = settings
        self.capacity = ROOM_OF_EXPERTS * cells * (settings.top + settings.sample)
        self.found = 0
        grouped = settings.dedupe != "none"
        self._buffer = Candidates(
            torch.empty(self.capacity, dtype=torch.int32, device=device),
            torch.empty(self.capacity, dtype=torch.float32, device=device),
            torch.empty(self.capacity, dtype=torch.int64, device=device),
            torch.empty(self.capacity, dtype=torch.int64, device=device) if grouped else None,
            torch.empty(self.capacity, dtype=torch.float16, device=device),
        )
        self._counter = torch.zeros(2, dtype=torch.int32, device=device)
        self._before = torch.zeros_like(self._counter)
        self._on_cuda = device.type == "cuda"
        self._counted = torch.zeros(2, dtype=torch.int32, pin_memory=self._on_cuda)
        self._event = torch.cuda.Event() if self._on_cuda else None
        self._latest: TritonLaunch | None = None
        self._thresholds: tuple[Thresholds, Tensor] | None = None

    def launch_lines(
        self,
        m: Tensor,
        table: LineTable,
        first_cell: int,
        thresholds: Thresholds,
        tallies: tuple[Tensor, Tensor],
        redo: Redo,
    ) -> TritonLaunch:
        """Start the pass over lines [line, memory] of experts, whose cells begin at the first.

        `tallies` are fires and totals, added to in place.
        """
        rows, size, out = table.rows, m.shape[1], self._buffer
        assert out.weights is not None
        grid = (triton.cdiv(size, BLOCK), table.experts, triton.cdiv(len(rows), SENTENCES))
        groups = rows.groups if rows.groups is not None else rows.places
        where = (m, m.stride(0), size, self.memories, first_cell, len(rows))
        self._before.copy_(self._counter)
        pass_over_lines[grid](
            *where, table.starts, table.counts, rows.small_sentences, rows.priorities,
            thresholds.coefficients, self._bar_sentences(thresholds), thresholds.priorities,
            tallies[1], tallies[0], self._counter, self.capacity,
            out.cells, out.coefficients, out.places,
            SIGNED=self.settings.signed, ROWS=SENTENCES, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
        find_lines[(FINDERS,)](
            *where, table.starts, table.counts, table.positions, table.weights,
            rows.places, rows.first, table.width, groups, groups.shape[-1],
            self._before, self._counter, self.capacity,
            out.cells, out.coefficients, out.places,
            out.places if out.groups is None else out.groups, out.weights,
            GROUPED=rows.groups is not None, PROGRAMS=FINDERS, SLOTS=SLOTS,
            num_warps=FINDER_WARPS,
        )  # fmt: skip
        return self._under_way(TritonLaunch(self, m, rows, redo))

    def _under_way(self, launch: TritonLaunch) -> TritonLaunch:
        """Let the counter come to the host behind a launch."""
        self._counted.copy_(self._counter, non_blocking=self._on_cuda)
        if self._event is not None:
            self._event.record()
        self._latest = launch
        return launch

    def count_bins_of_lines(
        self, m: Tensor, table: LineTable, first_cell: int, histogram: Tensor
    ) -> None:
        """Start adding the census's coefficients to a histogram [cells, BINS], in place."""
        rows, size = table.rows, m.shape[1]
        if not len(rows.census):
            return
        grid = (triton.cdiv(size, BLOCK), table.experts, len(rows.census))
        add_bins_of_lines[grid](
            m, m.stride(0), size, self.memories, first_cell, len(rows),
            table.starts, table.counts, rows.census, rows.factors, histogram,
            SIGNED=self.settings.signed, BINS=BINS, FIRST_BIN=127 + LOWEST,
            BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip

    def settle(self) -> None:
        """Wait for this layer's own latest launch, if nobody has yet."""
        if self._latest is not None:
            self._latest.settle()
            self._latest = None

    def check_overflow(self) -> bool:
        """Wait for the latest count and take it over; on overflow, drop that launch's part."""
        if self._event is not None:
            self._event.synchronize()
        found, overflow = self._counted.tolist()
        if overflow:
            raise not_finite()
        if found <= self.capacity:
            self.found = found
            return False
        self._counter[0] = self.found
        return True

    def take_candidates(self) -> list[Candidates]:
        """All candidates of settled launches, out of the buffer."""
        if not self.found:
            return []
        fields = [field[: self.found].clone() for field in self._buffer.fields]
        self.found = 0
        self._counter.zero_()
        return [self._buffer.of(fields)]

    def _bar_sentences(self, thresholds: Thresholds) -> Tensor:
        """The sentence up to which a tie passes: [cells], -1 where a slot is free anyway."""
        if self._thresholds is None or self._thresholds[0] is not thresholds:
            sentences = small_sentences(thresholds.places).masked_fill_(
                thresholds.places == EMPTY, -1
            )
            self._thresholds = (thresholds, sentences)
        return self._thresholds[1]
