# ruff: noqa: N803, PLR0913 (a kernel takes pointers and constants, not objects)
"""A GPU's candidates put into the state by one kernel, right behind the pass that finds them.

A sentence gives a cell one candidate at most. So a list for every cell with as many slots as a pass
has rows holds all that passes, whatever the text is. A program then takes the list of one cell and
puts it into the cell's slots: it counts how many of the others come before each entry, which is the
slot where that one belongs. The host starts both kernels and looks at nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from ffmem.scan.batch_rows import Rows
from ffmem.scan.settings import BINS, LISTED, LOWEST, ScanSettings
from ffmem.scan.triggers import Sample, Thresholds, Triggers
from ffmem.scan.triton_kernels import add_bins, pass_over

BLOCK = 128  # memories of a program that reads: 4 a thread, 8 bytes of bfloat16 a load
WARPS = 1  # so that no thread waits for other warps at the end of a row
ROWS = 4  # rows of a program that reads
CHUNK = 8  # candidates that a program puts in at once
WARP_SLOTS = 32  # slots of a cell for each warp of such a program
COLUMNS = 8  # of a row that a program puts into bins
NONE = tl.constexpr(2**31 - 1)  # the key of a free slot: see `hashing.NO_PRIORITY`
EMPTY = tl.constexpr(2**62)
OUTSIDE = tl.constexpr(1 << 16)  # more columns than a row has


@triton.jit
def _before(key, place, other_key, other_place):  # type: ignore[no-untyped-def]
    """The order of a state: the smaller key first, of equal ones the smaller place."""
    return (key < other_key) | ((key == other_key) & (place < other_place))


@triton.jit
def _ranks(  # type: ignore[no-untyped-def]
    keys, places, groups, new_keys, new_places, new_groups, slot, GROUPED: tl.constexpr
):  # fmt: skip
    """The slots where the entries of a cell, and newcomers, belong; far ones for those that leave.

    Entries are in order. Of a group the first alone stays.
    """
    real = new_keys != NONE
    ahead = real[None, :] & _before(
        new_keys[None, :], new_places[None, :], keys[:, None], places[:, None]
    )
    among = real[:, None] & _before(
        new_keys[:, None], new_places[:, None], new_keys[None, :], new_places[None, :]
    )
    stays, comes = slot >= 0, real
    if GROUPED:
        same = (groups[:, None] == new_groups[None, :]) & (places != EMPTY)[:, None]
        twins = among & (new_groups[:, None] == new_groups[None, :])
        stays = tl.max((same & ahead).to(tl.int32), 1) == 0
        comes = comes & (tl.max((same & ~ahead).to(tl.int32), 0) == 0)
        comes = comes & (tl.max(twins.to(tl.int32), 0) == 0)
    earlier = tl.cumsum(stays.to(tl.int32), 0) - stays.to(tl.int32)
    own = earlier + tl.sum((ahead & comes[None, :]).to(tl.int32), 1)
    new = tl.sum((~ahead & stays[:, None]).to(tl.int32), 0)
    new += tl.sum((among & comes[:, None]).to(tl.int32), 0)
    return tl.where(stays, own, NONE), tl.where(comes, new, NONE)


@triton.jit
def _steps(m, row_stride, stride, first, counts, memory, rows, wanted):  # type: ignore[no-untyped-def]
    """How many columns after its row's first each coefficient first stands; 0 without a row."""
    columns = tl.load(counts + rows, mask=rows >= 0, other=0).to(tl.int32)
    ahead = rows.to(tl.int64) * row_stride + first * stride + memory
    at = tl.where(rows >= 0, OUTSIDE, 0)
    for start in range(0, tl.max(columns, 0), 16):
        column = start + tl.arange(0, 16)
        inside = column[None, :] < columns[:, None]
        values = tl.load(m + ahead[:, None] + column[None, :] * stride, mask=inside, other=0.0)
        equal = inside & (values.to(tl.float32) == wanted[:, None])
        at = tl.minimum(at, tl.min(tl.where(equal, column[None, :], OUTSIDE), 1))
    return at


@triton.jit
def _move(field, slot, own, size, new_field, new):  # type: ignore[no-untyped-def]
    """A field of a cell's slots, at a pointer, after entries and newcomers went to theirs."""
    held = tl.load(field + slot, mask=slot < size, other=0)
    tl.debug_barrier()  # every entry is read before any is written over
    tl.store(field + own, held, mask=(own != slot) & (own < size) & (slot < size))
    tl.store(field + new, new_field, mask=new < size)


@triton.jit(do_not_specialize=["groups_width"])
def fold_lists(  # type: ignore[no-untyped-def]
    m, row_stride, stride, memories, first,
    counts, places, priorities, groups, groups_width,
    lengths, list_rows, list_coefficients, size,
    coefficients, trigger_places, trigger_groups, top,
    drawn_coefficients, drawn_places, drawn_priorities, sample,
    bar_coefficients, bar_places, bar_priorities,
    GROUPED: tl.constexpr, TOP: tl.constexpr, SAMPLE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Put one cell's list into its triggers and sample, raise its thresholds, empty the list."""
    cell = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + cell)
    if length > 0:
        memory = tl.where(cell < memories, cell, cell - memories)
        sign = tl.where(cell < memories, 1.0, -1.0)
        slot, draw = tl.arange(0, TOP), tl.arange(0, SAMPLE)
        coefficients += cell * top
        trigger_places += cell * top
        trigger_groups += cell * top
        drawn_coefficients += cell * sample
        drawn_places += cell * sample
        drawn_priorities += cell * sample
        for start in range(0, length, CHUNK):
            item = cell * size + start + tl.arange(0, CHUNK)
            inside = start + tl.arange(0, CHUNK) < length
            row = tl.load(list_rows + item, mask=inside, other=-1)
            value = tl.load(list_coefficients + item, mask=inside, other=0.0)
            place = tl.load(places + row, mask=inside, other=EMPTY)
            priority = tl.load(priorities + row, mask=inside, other=NONE)
            # Floats that are not below 0 order as their bits do.
            key = value.to(tl.int32, bitcast=True) ^ NONE
            c = tl.load(coefficients + slot, mask=slot < top, other=0.0)
            k = c.to(tl.int32, bitcast=True) ^ NONE
            p = tl.load(trigger_places + slot, mask=slot < top, other=EMPTY)
            g, group = p, place
            if GROUPED:  # a prefix must be known before its group is
                at = _steps(m, row_stride, stride, first, counts, memory, row, sign * value)
                group = tl.load(groups + row.to(tl.int64) * groups_width + at, mask=inside, other=0)
                place += at
                g = tl.load(trigger_groups + slot, mask=slot < top, other=0)
            own, new = _ranks(k, p, g, key, place, group, slot, GROUPED)
            dk = tl.load(drawn_priorities + draw, mask=draw < sample, other=NONE)
            dp = tl.load(drawn_places + draw, mask=draw < sample, other=EMPTY)
            down, drawn = _ranks(dk, dp, dp, priority, place, place, draw, False)
            if not GROUPED:
                row = tl.where((new < top) | (drawn < sample), row, -1)
                place += _steps(m, row_stride, stride, first, counts, memory, row, sign * value)
            _move(coefficients, slot, own, top, value, new)
            _move(trigger_places, slot, own, top, place, new)
            if GROUPED:
                _move(trigger_groups, slot, own, top, group, new)
            _move(drawn_coefficients, draw, down, sample, value, drawn)
            _move(drawn_places, draw, down, sample, place, drawn)
            _move(drawn_priorities, draw, down, sample, priority, drawn)
            tl.debug_barrier()  # what was written is read again
        tl.store(bar_coefficients + cell, tl.load(coefficients + top - 1))
        tl.store(bar_places + cell, tl.load(trigger_places + top - 1))
        if sample > 0:
            tl.store(bar_priorities + cell, tl.load(drawn_priorities + sample - 1))
        tl.store(lengths + cell, 0)


def runs_on(device: torch.device) -> bool:
    """Whether the kernels run there: on CUDA, or anywhere under Triton's interpreter."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


class CellLists:
    """What waits to be folded in, a list for every cell; layers of one size share it.

    Nothing is in it between two batches.
    """

    def __init__(self, cells: int, device: torch.device) -> None:
        self.size = max(1, LISTED // cells)
        self.lengths = torch.zeros(cells, dtype=torch.int32, device=device)
        self.rows = torch.empty(cells, self.size, dtype=torch.int32, device=device)
        self.coefficients = torch.empty(cells, self.size, device=device)


class FoldingPass:
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
        rows: Rows,
        state: tuple[Triggers, Sample, Thresholds],
        tallies: tuple[Tensor, Tensor],
    ) -> None:
        """Start the work on a batch; `tallies` are fires and totals."""
        m = m if m.stride(2) == 1 else m.contiguous()
        for part, some in self._parts(m, rows):
            self._read(part, some, state[2], tallies)
            self._fold(part, some, *state)

    def _parts(self, m: Tensor, rows: Rows) -> Iterator[tuple[Tensor, Rows]]:
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

    def count_bins(self, m: Tensor, rows: Rows, histogram: Tensor) -> None:
        """Start adding the census's coefficients to a histogram [cells, BINS], in place."""
        if not len(rows.census):
            return
        m = m if m.stride(2) == 1 else m.contiguous()
        most = triton.cdiv(max(rows.columns), COLUMNS)
        grid = (triton.cdiv(self.memories, BLOCK), len(rows.census), most)
        add_bins[grid](
            m, m.stride(0), m.stride(1), self.memories, rows.first,
            rows.counts, rows.census, rows.factors, histogram,
            SIGNED=self.settings.signed, BINS=BINS, FIRST_BIN=127 + LOWEST,
            BLOCK=BLOCK, COLUMNS=COLUMNS, num_warps=WARPS,
        )  # fmt: skip

    def is_finite(self) -> bool:
        """Whether all coefficients so far were numbers; waits for the GPU."""
        return not self._flags.any()

    def _read(
        self, m: Tensor, rows: Rows, thresholds: Thresholds, tallies: tuple[Tensor, Tensor]
    ) -> None:
        grid = (triton.cdiv(self.memories, BLOCK), triton.cdiv(len(rows), ROWS))
        lists = self._lists
        pass_over[grid](
            m, m.stride(0), m.stride(1), len(rows), self.memories, rows.first,
            rows.counts, rows.places, rows.priorities,
            thresholds.coefficients, thresholds.places, thresholds.priorities,
            tallies[1], tallies[0], self._flags,
            lists.lengths, lists.rows, lists.coefficients, lists.size,
            SIGNED=self.settings.signed, ROWS=ROWS, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip

    def _fold(
        self, m: Tensor, rows: Rows, triggers: Triggers, sample: Sample, thresholds: Thresholds
    ) -> None:
        lists, top, drawn = self._lists, self.settings.top, self.settings.sample
        slots = triton.next_power_of_2(max(top, drawn))
        none = rows.places  # any tensor will do where there are no groups
        groups = none if rows.groups is None else rows.groups
        fold_lists[(len(lists.lengths),)](
            m, m.stride(0), m.stride(1), self.memories, rows.first,
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
