# ruff: noqa: N803, PLR0913 (a kernel takes pointers and constants, not objects)
"""One pass over a layer's coefficients on a GPU, each read from memory once.

A program takes a block of memories and a few rows. It walks the admissible prefixes of a row with
the largest coefficient, the sums and the count in registers. If anything passes a bar, the row,
still in the cache, is walked again for the positions of just that, and it is appended to a buffer
through a counter, in no order (the fold sorts it). Sums and counts are added up as integers, so the
order of programs does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from ffmem.errors import ScanError
from ffmem.scan.candidates import Candidates
from ffmem.scan.places import EMPTY, small_sentences
from ffmem.scan.rows import Rows
from ffmem.scan.search import Bars
from ffmem.scan.settings import ScanSettings

BLOCK = 512  # memories of a program: 4 a thread, 8 bytes of bfloat16 a load
WARPS = 4
ROWS = 4  # rows of a program
ROOM = 4  # times the candidates that are worth a fold: the buffer's size


def runs_on(device: torch.device) -> bool:
    """Whether the kernel runs there: on CUDA, or anywhere under Triton's interpreter."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def _column(source, cell, wanted):  # type: ignore[no-untyped-def]
    """One prefix's coefficients, 0 where not wanted."""
    return tl.load(source + cell, mask=wanted, other=0.0).to(tl.float32)


@triton.jit
def _take(  # type: ignore[no-untyped-def]
    value, best, minus_best, sums, sizes, count, minus_count, SIGNED: tl.constexpr
):  # fmt: skip
    """One more prefix of a row."""
    best = tl.maximum(best, value)
    sums += value
    sizes += tl.abs(value)
    count += (value > 0).to(tl.int32)
    if SIGNED:
        minus_best = tl.maximum(minus_best, -value)
        minus_count += (value < 0).to(tl.int32)
    return best, minus_best, sums, sizes, count, minus_count


@triton.jit
def _first_columns(row, stride, columns, cell, best, passes):  # type: ignore[no-untyped-def]
    """Walk a row again, only for the memories that passed: where `best` first stands."""
    at = tl.full(best.shape, 65536, tl.int32)
    for step in range(0, columns, 4):
        v0 = _column(row, cell, passes)
        v1 = _column(row + stride, cell, passes & (step + 1 < columns))
        v2 = _column(row + 2 * stride, cell, passes & (step + 2 < columns))
        v3 = _column(row + 3 * stride, cell, passes & (step + 3 < columns))
        row += 4 * stride
        here = tl.where(v3 == best, step + 3, 65536)
        here = tl.where(v2 == best, step + 2, here)
        here = tl.where(v1 == best, step + 1, here)
        here = tl.where(v0 == best, step, here)
        at = tl.minimum(at, here)
    return at


@triton.jit
def _append(  # type: ignore[no-untyped-def]
    best, signed_best, cell, memory, passes, row, stride, columns, first_place, row_groups,
    counter, capacity, out_cells, out_coefficients, out_places, out_groups,
    GROUPED: tl.constexpr,
):  # fmt: skip
    """Write down what passed; slots past the capacity are counted but not written."""
    if tl.max(passes.to(tl.int32), 0) > 0:
        at = _first_columns(row, stride, columns, memory, signed_best, passes)
        slot = tl.atomic_add(counter + cell * 0, 1, mask=passes, sem="relaxed")
        written = passes & (slot < capacity)
        tl.store(out_cells + slot, cell, mask=written)
        tl.store(out_coefficients + slot, best, mask=written)
        tl.store(out_places + slot, first_place + at, mask=written)
        if GROUPED:
            group = tl.load(row_groups + at, mask=written, other=0)
            tl.store(out_groups + slot, group, mask=written)


@triton.jit
def _tally(total, count, cell, inside, totals, fires, counter):  # type: ignore[no-untyped-def]
    """Add to the integer sums; a total that is not finite raises the flag after the counter."""
    finite = tl.abs(total) < float("inf")
    steps = tl.floor(total * 16777216.0 + 0.5).to(tl.int64)  # UNIT is 2**-24
    tl.atomic_add(totals + cell, steps, mask=inside & finite, sem="relaxed")
    tl.atomic_add(fires + cell, count.to(tl.int64), mask=inside, sem="relaxed")
    tl.atomic_max(counter + 1 + cell * 0, 1, mask=inside & ~finite, sem="relaxed")


@triton.jit
def _pass(  # type: ignore[no-untyped-def]
    m, row_stride, stride, rows, memories, first,
    counts, places, sentences, priorities,
    bar_coefficients, bar_sentences, bar_priorities,
    totals, fires, counter, capacity,
    out_cells, out_coefficients, out_places, out_groups, groups, groups_width,
    SIGNED: tl.constexpr, GROUPED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < memories
    minus = cell + memories  # the same memories' cells of the other sign
    bar = tl.load(bar_coefficients + cell, mask=inside, other=float("inf"))
    bar_sentence = tl.load(bar_sentences + cell, mask=inside, other=-1)
    bar_priority = tl.load(bar_priorities + cell, mask=inside, other=-1)
    if SIGNED:
        minus_bar = tl.load(bar_coefficients + minus, mask=inside, other=float("inf"))
        minus_bar_sentence = tl.load(bar_sentences + minus, mask=inside, other=-1)
        minus_bar_priority = tl.load(bar_priorities + minus, mask=inside, other=-1)
    sums = tl.zeros([BLOCK], tl.float32)
    sizes = tl.zeros([BLOCK], tl.float32)  # of absolute values
    count = tl.zeros([BLOCK], tl.int32)
    minus_count = tl.zeros([BLOCK], tl.int32)
    start = tl.program_id(1) * ROWS
    source = m + start.to(tl.int64) * row_stride + first * stride
    for row in range(start, tl.minimum(start + ROWS, rows)):
        columns = tl.load(counts + row).to(tl.int32)
        best = tl.zeros([BLOCK], tl.float32)
        minus_best = tl.zeros([BLOCK], tl.float32)
        ahead = source
        for step in range(0, columns, 8):
            # All eight are on their way from memory before the first is used.
            v0 = _column(ahead, cell, inside)
            v1 = _column(ahead + stride, cell, inside & (step + 1 < columns))
            v2 = _column(ahead + 2 * stride, cell, inside & (step + 2 < columns))
            v3 = _column(ahead + 3 * stride, cell, inside & (step + 3 < columns))
            v4 = _column(ahead + 4 * stride, cell, inside & (step + 4 < columns))
            v5 = _column(ahead + 5 * stride, cell, inside & (step + 5 < columns))
            v6 = _column(ahead + 6 * stride, cell, inside & (step + 6 < columns))
            v7 = _column(ahead + 7 * stride, cell, inside & (step + 7 < columns))
            ahead += 8 * stride
            best, minus_best, sums, sizes, count, minus_count = _take(
                v0, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v1, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v2, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v3, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v4, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v5, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v6, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
            best, minus_best, sums, sizes, count, minus_count = _take(
                v7, best, minus_best, sums, sizes, count, minus_count, SIGNED
            )
        place = tl.load(places + row)
        sentence = tl.load(sentences + row)
        priority = tl.load(priorities + row)
        row_groups = groups + row * groups_width
        passes = (best > bar) | ((best == bar) & (sentence <= bar_sentence))
        passes = (passes | (priority <= bar_priority)) & (best > 0) & inside
        _append(
            best, best, cell, cell, passes, source, stride, columns, place, row_groups,
            counter, capacity, out_cells, out_coefficients, out_places, out_groups, GROUPED,
        )  # fmt: skip
        if SIGNED:
            passes = (minus_best > minus_bar) | (
                (minus_best == minus_bar) & (sentence <= minus_bar_sentence)
            )
            passes = (passes | (priority <= minus_bar_priority)) & (minus_best > 0) & inside
            _append(
                minus_best, -minus_best, minus, cell, passes, source, stride, columns, place,
                row_groups, counter, capacity,
                out_cells, out_coefficients, out_places, out_groups, GROUPED,
            )  # fmt: skip
        source += row_stride
    # Sum and sum of sizes give the sum over either sign for two additions a coefficient.
    _tally((sizes + sums) * 0.5, count, cell, inside, totals, fires, counter)
    if SIGNED:
        _tally((sizes - sums) * 0.5, minus_count, minus, inside, totals, fires, counter)


Redo = Callable[[Tensor, Rows], None]


class KernelLaunch:
    """One batch handed to the GPU; keeps its coefficients until the outcome has been seen."""

    def __init__(self, kernel: KernelPass, m: Tensor, rows: Rows, redo: Redo) -> None:
        self._kernel = kernel
        self._work: tuple[Tensor, Rows, Redo] | None = (m, rows, redo)

    def settle(self) -> None:
        """Wait for the counter; redo the batch if the buffer was too small for it."""
        if self._work is None:
            return
        m, rows, redo = self._work
        self._work = None
        if self._kernel.overflowed():
            redo(m, rows)


class KernelPass:
    """One layer's buffer of candidates and the counter of what is in it.

    The counter is copied to the host behind each launch and looked at later, so the host never
    waits for a launch it has just made. `found` is the count up to the last launch settled.
    """

    def __init__(self, memories: int, settings: ScanSettings, device: torch.device) -> None:
        cells = settings.cells(memories)
        self.memories = memories
        self.settings = settings
        self.capacity = ROOM * cells * (settings.top + settings.sample)
        self.found = 0
        grouped = settings.dedupe != "none"
        self._buffer = Candidates(
            torch.empty(self.capacity, dtype=torch.int32, device=device),
            torch.empty(self.capacity, dtype=torch.float32, device=device),
            torch.empty(self.capacity, dtype=torch.int64, device=device),
            torch.empty(self.capacity, dtype=torch.int64, device=device) if grouped else None,
        )
        self._counter = torch.zeros(2, dtype=torch.int32, device=device)
        self._on_cuda = device.type == "cuda"
        self._counted = torch.zeros(2, dtype=torch.int32, pin_memory=self._on_cuda)
        self._event = torch.cuda.Event() if self._on_cuda else None
        self._latest: KernelLaunch | None = None
        self._bars: tuple[Bars, Tensor] | None = None

    def launch(
        self, m: Tensor, rows: Rows, bars: Bars, tallies: tuple[Tensor, Tensor], redo: Redo
    ) -> KernelLaunch:
        """Start the pass over a batch; `tallies` are fires and totals, added to in place."""
        if m.stride(2) != 1:
            m = m.contiguous()
        grid = (triton.cdiv(self.memories, BLOCK), triton.cdiv(len(rows), ROWS))
        groups = rows.groups if rows.groups is not None else rows.places
        _pass[grid](
            m, m.stride(0), m.stride(1), len(rows), self.memories, rows.first,
            rows.counts, rows.places, rows.small_sentences, rows.priorities,
            bars.coefficients, self._bar_sentences(bars), bars.priorities,
            tallies[1], tallies[0], self._counter, self.capacity,
            self._buffer.cells, self._buffer.coefficients, self._buffer.places,
            self._buffer.places if self._buffer.groups is None else self._buffer.groups,
            groups, groups.shape[-1],
            SIGNED=self.settings.signed, GROUPED=rows.groups is not None,
            ROWS=ROWS, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
        self._counted.copy_(self._counter, non_blocking=self._on_cuda)
        if self._event is not None:
            self._event.record()
        self._latest = KernelLaunch(self, m, rows, redo)
        return self._latest

    def settle(self) -> None:
        """Wait for this layer's own latest launch, if nobody has yet."""
        if self._latest is not None:
            self._latest.settle()
            self._latest = None

    def overflowed(self) -> bool:
        """Wait for the latest count and take it over; on overflow, drop that launch's part."""
        if self._event is not None:
            self._event.synchronize()
        found, not_finite = self._counted.tolist()
        if not_finite:
            raise ScanError(
                "the model gives coefficients that are infinite or not a number; "
                "run it in bfloat16 or float32"
            )
        if found <= self.capacity:
            self.found = found
            return False
        self._counter[0] = self.found
        return True

    def taken(self) -> list[Candidates]:
        """All candidates of settled launches, out of the buffer."""
        if not self.found:
            return []
        fields = [field[: self.found].clone() for field in self._buffer.fields]
        self.found = 0
        self._counter.zero_()
        return [Candidates(*fields)]

    def _bar_sentences(self, bars: Bars) -> Tensor:
        """The sentence up to which a tie passes: [cells], -1 where a slot is free anyway."""
        if self._bars is None or self._bars[0] is not bars:
            sentences = small_sentences(bars.places).masked_fill_(bars.places == EMPTY, -1)
            self._bars = (bars, sentences)
        return self._bars[1]
