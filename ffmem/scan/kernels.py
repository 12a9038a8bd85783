"""One pass over a layer's coefficients on a GPU, each read from memory once.

A program takes a block of memories and a few rows. It walks the admissible prefixes of a row with
the largest coefficient, its first position, the sum and the count in registers; what passes a bar
is appended to a buffer through a counter, in no order (the fold sorts it). Sums and counts are
added as integers, so the order of programs does not matter.
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

BLOCK = 1024  # memories of a program: with 4 warps 8 a thread, 16 bytes of bfloat16 a load
WARPS = 4
ROWS = 4  # rows of a program
ROOM = 4  # times the candidates that are worth a fold: the buffer's size


def runs_on(device: torch.device) -> bool:
    """Whether the kernel runs there: on CUDA, or anywhere under Triton's interpreter."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def _take(value, step, best, at, total, count):  # type: ignore[no-untyped-def]
    """One more coefficient of a row; the first of equals stays, and NaN reaches the total."""
    higher = value > best
    best = tl.where(higher, value, best)
    at = tl.where(higher, step, at)
    total += tl.where(value < 0, 0.0, value)
    count += (value > 0).to(tl.int32)
    return best, at, total, count


@triton.jit
def _append(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    best, at, cell, inside, first_place, sentence, priority,
    bar_coefficients, bar_sentences, bar_priorities,
    counter, capacity, out_cells, out_coefficients, out_places, out_groups,
    row_groups, GROUPED: tl.constexpr,
):  # fmt: skip
    """Write down what passes a bar; slots past the capacity are counted but not written."""
    bar = tl.load(bar_coefficients + cell, mask=inside, other=float("inf"))
    bar_sentence = tl.load(bar_sentences + cell, mask=inside, other=-1)
    bar_priority = tl.load(bar_priorities + cell, mask=inside, other=-1)
    passes = (best > bar) | ((best == bar) & (sentence <= bar_sentence))
    passes = (passes | (priority <= bar_priority)) & (best > 0) & inside
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
def _pass(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    m, row_stride, column_stride, rows, memories, first,
    counts, places, sentences, priorities,
    bar_coefficients, bar_sentences, bar_priorities,
    totals, fires, counter, capacity,
    out_cells, out_coefficients, out_places, out_groups, groups, groups_width,
    SIGNED: tl.constexpr, GROUPED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    memory = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = memory < memories
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.int32)
    minus_total = tl.zeros([BLOCK], tl.float32)
    minus_count = tl.zeros([BLOCK], tl.int32)
    start = tl.program_id(1) * ROWS
    source = m + start.to(tl.int64) * row_stride + first * column_stride + memory
    for row in range(start, tl.minimum(start + ROWS, rows)):
        columns = tl.load(counts + row).to(tl.int32)
        ahead = source
        source += row_stride
        best = tl.zeros([BLOCK], tl.float32)
        at = tl.zeros([BLOCK], tl.int32)
        minus_best = tl.zeros([BLOCK], tl.float32)
        minus_at = tl.zeros([BLOCK], tl.int32)
        for step in range(0, columns, 4):
            # All four loads are on their way before the first is used.
            v0 = tl.load(ahead, mask=inside, other=0.0).to(tl.float32)
            v1 = tl.load(ahead + column_stride, mask=inside & (step + 1 < columns), other=0.0)
            v2 = tl.load(ahead + 2 * column_stride, mask=inside & (step + 2 < columns), other=0.0)
            v3 = tl.load(ahead + 3 * column_stride, mask=inside & (step + 3 < columns), other=0.0)
            ahead += 4 * column_stride
            v1 = v1.to(tl.float32)
            v2 = v2.to(tl.float32)
            v3 = v3.to(tl.float32)
            best, at, total, count = _take(v0, step, best, at, total, count)
            best, at, total, count = _take(v1, step + 1, best, at, total, count)
            best, at, total, count = _take(v2, step + 2, best, at, total, count)
            best, at, total, count = _take(v3, step + 3, best, at, total, count)
            if SIGNED:
                minus_best, minus_at, minus_total, minus_count = _take(
                    -v0, step, minus_best, minus_at, minus_total, minus_count
                )
                minus_best, minus_at, minus_total, minus_count = _take(
                    -v1, step + 1, minus_best, minus_at, minus_total, minus_count
                )
                minus_best, minus_at, minus_total, minus_count = _take(
                    -v2, step + 2, minus_best, minus_at, minus_total, minus_count
                )
                minus_best, minus_at, minus_total, minus_count = _take(
                    -v3, step + 3, minus_best, minus_at, minus_total, minus_count
                )
        place = tl.load(places + row)
        sentence = tl.load(sentences + row)
        priority = tl.load(priorities + row)
        row_groups = groups + row * groups_width  # [b, most] of them: no more than 2**31
        _append(
            best, at, memory, inside, place, sentence, priority,
            bar_coefficients, bar_sentences, bar_priorities,
            counter, capacity, out_cells, out_coefficients, out_places, out_groups,
            row_groups, GROUPED,
        )  # fmt: skip
        if SIGNED:
            _append(
                minus_best, minus_at, memory + memories, inside, place, sentence, priority,
                bar_coefficients, bar_sentences, bar_priorities,
                counter, capacity, out_cells, out_coefficients, out_places, out_groups,
                row_groups, GROUPED,
            )  # fmt: skip
    _tally(total, count, memory, inside, totals, fires, counter)
    if SIGNED:
        _tally(minus_total, minus_count, memory + memories, inside, totals, fires, counter)


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
            SIGNED=self.settings.signed, GROUPED=rows.groups is not None, ROWS=ROWS, BLOCK=BLOCK,
            num_warps=WARPS,
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

