"""A layer's coefficients read on a GPU, and its state brought up to date.

A dense layer's state is brought up to date on the GPU itself (`TritonPass`). What experts give
waits in a buffer with a counter, whose launches are looked at later (`ExpertPass`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import triton
from torch import Tensor

from ffmem.corpus.shards import EMPTY
from ffmem.scan.batch_rows import BatchRows
from ffmem.scan.candidates import Candidates
from ffmem.scan.expert_rows import LineTable
from ffmem.scan.hashing import small_sentences
from ffmem.scan.passes.triton_kernels import (
    add_bins,
    add_bins_of_lines,
    find_lines,
    fold_lists,
    pass_over,
    pass_over_lines,
)
from ffmem.scan.settings import BINS, CANDIDATE_SLOTS, LOWEST, ROOM_OF_EXPERTS, ScanSettings
from ffmem.scan.tallies import not_finite
from ffmem.scan.triggers import Sample, Thresholds, Triggers

BLOCK = 128  # memories of a program that reads: 4 a thread, 8 bytes of bfloat16 a load
WARPS = 1  # so that no thread waits for other warps at the end of a row
ROWS = 4  # rows of a program that reads
CHUNK = 8  # candidates that a program puts in at once
WARP_SLOTS = 32  # slots of a cell for each warp of such a program
COLUMNS = 8  # of a row that a program puts into bins
FINDERS, SLOTS = 512, 128  # programs that look positions up, and candidates each takes at once
FINDER_WARPS = 4
SENTENCES = 128  # of a program that reads the lines of an expert


def runs_on(device: torch.device) -> bool:
    """Whether the kernels run there: on CUDA, or anywhere under Triton's interpreter."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


class CellLists:
    """What waits to be folded in, a list for every cell; layers of one size share it.

    Nothing is in it between two layers, so those of other sizes share its slots.
    """

    def __init__(self, cells: int, device: torch.device, other: CellLists | None = None) -> None:
        self.size = max(1, CANDIDATE_SLOTS // cells)
        self.lengths = torch.zeros(cells, dtype=torch.int32, device=device)
        slots = max(CANDIDATE_SLOTS, cells)
        if other is None or len(other.rows) < slots:
            self.rows: Tensor = torch.empty(slots, dtype=torch.int32, device=device)
            self.coefficients: Tensor = torch.empty(slots, device=device)
        else:
            self.rows, self.coefficients = other.rows, other.coefficients


class TritonPass:
    """Reads one layer's coefficients on a GPU and brings its state up to date, in place."""

    def __init__(self, memories: int, settings: ScanSettings, lists: CellLists) -> None:
        self.memories, self.settings, self._lists = memories, settings, lists
        self._flags = torch.zeros(2, dtype=torch.int32, device=lists.lengths.device)

    def reads(self, _m: Tensor) -> bool:
        """Whether these are coefficients that the kernels read: all are."""
        return True

    def take_in(
        self,
        m: Tensor,
        rows: BatchRows,
        state: tuple[Triggers, Sample, Thresholds],
        tallies: tuple[Tensor, Tensor],
    ) -> None:
        """Start the work on a batch; `tallies` are fires and totals."""
        m = m if m.stride(2) == 1 else m.contiguous()
        for part, some in self._parts(m, rows):
            self._read(part, some, state[2], tallies)
            self._fold(part, some, *state)

    def _parts(self, m: Tensor, rows: BatchRows) -> Iterator[tuple[Tensor, BatchRows]]:
        """As many rows at a time as a list has slots: mostly all of them."""
        size = self._lists.size
        if len(rows) <= size:
            yield m, rows
            return
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            yield (
                m[part],
                replace(
                    rows,
                    counts=rows.counts[part],
                    places=rows.places[part],
                    priorities=rows.priorities[part],
                    groups=None if rows.groups is None else rows.groups[part],
                ),
            )

    def count_bins(self, m: Tensor, rows: BatchRows, histogram: Tensor) -> None:
        """Start adding the census's coefficients to a histogram [cells, BINS], in place."""
        if not len(rows.census):
            return
        m = m if m.stride(2) == 1 else m.contiguous()
        most = triton.cdiv(max(rows.columns), COLUMNS)
        grid = (triton.cdiv(self.memories, BLOCK), len(rows.census), most)
        add_bins[grid](
            m, m.stride(0), m.stride(1), self.memories, rows.first * m.stride(1),
            rows.counts, rows.census, rows.factors, histogram,
            SIGNED=self.settings.signed, BINS=BINS, FIRST_BIN=127 + LOWEST,
            BLOCK=BLOCK, COLUMNS=COLUMNS, num_warps=WARPS,
        )  # fmt: skip

    def is_finite(self) -> bool:
        """Whether all coefficients so far were numbers; waits for the GPU."""
        return not self._flags.any()

    def _read(
        self, m: Tensor, rows: BatchRows, thresholds: Thresholds, tallies: tuple[Tensor, Tensor]
    ) -> None:
        grid = (triton.cdiv(self.memories, BLOCK), triton.cdiv(len(rows), ROWS))
        lists = self._lists
        pass_over[grid](
            m, m.stride(0), m.stride(1), len(rows), self.memories, rows.first * m.stride(1),
            rows.counts, rows.places, rows.priorities,
            thresholds.coefficients, thresholds.places, thresholds.priorities,
            tallies[1], tallies[0], self._flags,
            lists.lengths, lists.rows, lists.coefficients, lists.size,
            SIGNED=self.settings.signed, ROWS=ROWS, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip

    def _fold(
        self, m: Tensor, rows: BatchRows, triggers: Triggers, sample: Sample, thresholds: Thresholds
    ) -> None:
        lists, top, drawn = self._lists, self.settings.top, self.settings.sample
        slots = triton.next_power_of_2(max(top, drawn))
        none = rows.places  # any tensor will do where there are no groups
        groups = none if rows.groups is None else rows.groups
        fold_lists[(len(lists.lengths),)](
            m, m.stride(0), m.stride(1), self.memories, rows.first * m.stride(1),
            rows.counts, rows.places, rows.priorities, groups, groups.shape[-1],
            lists.lengths, lists.rows, lists.coefficients, lists.size,
            triggers.coefficients, triggers.places,
            none if triggers.groups is None else triggers.groups, top,
            sample.coefficients, sample.places, sample.priorities, drawn,
            thresholds.coefficients, thresholds.places, thresholds.priorities,
            GROUPED=rows.groups is not None, TOP=triton.next_power_of_2(top),
            SAMPLE=triton.next_power_of_2(max(drawn, 1)), CHUNK=CHUNK,
            num_warps=max(1, slots // WARP_SLOTS),
        )  # fmt: skip


Redo = Callable[[Tensor, BatchRows], None]


class ExpertLaunch:
    """One batch handed to the GPU; keeps its coefficients until the outcome has been seen."""

    def __init__(self, kernel: ExpertPass, m: Tensor, rows: BatchRows, redo: Redo) -> None:
        self._kernel = kernel
        self._work: tuple[Tensor, BatchRows, Redo] | None = (m, rows, redo)

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


class ExpertPass:
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
        self._latest: ExpertLaunch | None = None
        self._thresholds: tuple[Thresholds, Tensor] | None = None

    def launch_lines(
        self,
        m: Tensor,
        table: LineTable,
        first_cell: int,
        thresholds: Thresholds,
        tallies: tuple[Tensor, Tensor],
        redo: Redo,
    ) -> ExpertLaunch:
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
        return self._under_way(ExpertLaunch(self, m, rows, redo))

    def _under_way(self, launch: ExpertLaunch) -> ExpertLaunch:
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
