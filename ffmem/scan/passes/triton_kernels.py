# ruff: noqa: N803, PLR0913 (a kernel takes pointers and constants, not objects)
"""One pass over a layer's coefficients on a GPU, each read from memory once.

A program takes a block of memories and a few rows. It walks the admissible prefixes of a row with
the largest coefficient, the sums and the count in registers. What passes a bar is put on the list
of its cell, in no order. Sums and counts are added up as integers, so the order of programs does
not matter. A sentence gives a cell one candidate at most, so a list with as many slots as a pass
has rows holds all that passes, whatever the text is. In a second kernel a program takes the list of
one cell and counts how many of the others come before each entry, which is the slot of the cell
where that one belongs. The host starts both kernels and looks at nothing. `first` is how many
numbers before a row's first admissible prefix stand in memory; offsets of rows and columns are
int64, because those of long sentences of a wide layer do not fit less.

The lines of experts have kernels of their own. What passes is appended to a buffer through a
counter, and a second kernel looks up the positions of just that: few coefficients, many at a time,
where a second walk in the first kernel would let a whole block wait for one. An expert's lines
stand one behind the other, those of a sentence together and in the order of its places. A program
takes a block of an expert's memories and a run of sentences, so that the thresholds of the block
are read once: most sentences have few lines at an expert, many have none.
"""

from __future__ import annotations

import triton
import triton.language as tl

NONE = tl.constexpr(2**31 - 1)  # the key of a free slot: see `hashing.NO_PRIORITY`
EMPTY = tl.constexpr(2**62)  # its place
OUTSIDE = tl.constexpr(1 << 16)  # more columns than a row has


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
def _append(  # type: ignore[no-untyped-def]
    best, cell, passes, row, counter, capacity, out_cells, out_coefficients, out_places
):  # fmt: skip
    """Write down what passed, with its row for a place; what has no room is only counted."""
    how_many = tl.sum(passes.to(tl.int32), 0)
    if how_many > 0:
        start = tl.atomic_add(counter, how_many, sem="relaxed")
        slot = start + tl.cumsum(passes.to(tl.int32), 0) - 1
        written = passes & (slot < capacity)
        tl.store(out_cells + slot, cell, mask=written)
        tl.store(out_coefficients + slot, best, mask=written)
        tl.store(out_places + slot, cell * 0 + row, mask=written)


@triton.jit
def _append_to_lists(  # type: ignore[no-untyped-def]
    best, cell, passes, row, lengths, list_rows, list_coefficients, size
):  # fmt: skip
    """Write down what passed, each in the list of its cell, which has room for every row."""
    if tl.sum(passes.to(tl.int32), 0) > 0:
        item = tl.atomic_add(lengths + cell, 1, mask=passes, sem="relaxed")
        slot = cell.to(tl.int64) * size + item
        tl.store(list_rows + slot, cell * 0 + row, mask=passes)
        tl.store(list_coefficients + slot, best, mask=passes)


@triton.jit
def _tally(total, count, cell, inside, totals, fires, counter):  # type: ignore[no-untyped-def]
    """Add to the integer sums; a total that is not finite raises the flag after the counter."""
    finite = tl.abs(total) < float("inf")
    total = tl.where(finite, total, 0.0)  # what is not has no int64
    steps = tl.floor(total * 16777216.0 + 0.5).to(tl.int64)  # UNIT is 2**-24
    tl.atomic_add(totals + cell, steps, mask=inside & finite, sem="relaxed")
    tl.atomic_add(fires + cell, count.to(tl.int64), mask=inside, sem="relaxed")
    tl.atomic_max(counter + 1 + cell * 0, 1, mask=inside & ~finite, sem="relaxed")


@triton.jit(do_not_specialize=["rows"])
def pass_over(  # type: ignore[no-untyped-def]
    m, row_stride, stride, rows, memories, first,
    counts, places, priorities,
    bar_coefficients, bar_places, bar_priorities,
    totals, fires, flags, lengths, list_rows, list_coefficients, size,
    SIGNED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Walk a block of memories over a few rows: add to the tallies, list what passes a bar."""
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < memories
    minus = cell + memories  # the same memories' cells of the other sign
    bar = tl.load(bar_coefficients + cell, mask=inside, other=float("inf"))
    bar_place = tl.load(bar_places + cell, mask=inside, other=-1)
    bar_priority = tl.load(bar_priorities + cell, mask=inside, other=-1)
    if SIGNED:
        minus_bar = tl.load(bar_coefficients + minus, mask=inside, other=float("inf"))
        minus_bar_place = tl.load(bar_places + minus, mask=inside, other=-1)
        minus_bar_priority = tl.load(bar_priorities + minus, mask=inside, other=-1)
    sums = tl.zeros([BLOCK], tl.float32)
    sizes = tl.zeros([BLOCK], tl.float32)  # of absolute values
    count = tl.zeros([BLOCK], tl.int32)
    minus_count = tl.zeros([BLOCK], tl.int32)
    start = tl.program_id(1) * ROWS
    source = m + start.to(tl.int64) * row_stride + first
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
        priority = tl.load(priorities + row)
        passes = (best > bar) | ((best == bar) & (place < bar_place))
        passes = (passes | (priority <= bar_priority)) & (best > 0) & inside
        _append_to_lists(best, cell, passes, row, lengths, list_rows, list_coefficients, size)
        if SIGNED:
            passes = (minus_best > minus_bar) | (
                (minus_best == minus_bar) & (place < minus_bar_place)
            )
            passes = (passes | (priority <= minus_bar_priority)) & (minus_best > 0) & inside
            _append_to_lists(
                minus_best, minus, passes, row, lengths, list_rows, list_coefficients, size
            )
        source += row_stride
    # Sum and sum of sizes give the sum over either sign for two additions a coefficient.
    _tally((sizes + sums) * 0.5, count, cell, inside, totals, fires, flags)
    if SIGNED:
        _tally((sizes - sums) * 0.5, minus_count, minus, inside, totals, fires, flags)


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
    ahead = rows.to(tl.int64) * row_stride + first + memory
    at = tl.where(rows >= 0, OUTSIDE, 0)
    for start in range(0, tl.max(columns, 0), 16):
        column = start + tl.arange(0, 16)
        inside = column[None, :] < columns[:, None]
        source = m + ahead[:, None] + column[None, :].to(tl.int64) * stride
        values = tl.load(source, mask=inside, other=0.0)
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


@triton.jit
def _add_to_bins(  # type: ignore[no-untyped-def]
    value, cell, factor, histogram, BINS: tl.constexpr, FIRST_BIN: tl.constexpr
):  # fmt: skip
    """Add a factor to the bin of every value above zero (see `torch_pass.bin_numbers`)."""
    bits = value.to(tl.int32, bitcast=True)
    number = ((bits - 1) >> 23) - FIRST_BIN
    number = tl.minimum(tl.maximum(number, 0), BINS - 1)
    tl.atomic_add(histogram + cell * BINS + number, factor, mask=value > 0, sem="relaxed")


@triton.jit
def add_bins(  # type: ignore[no-untyped-def]
    m, row_stride, stride, memories, first,
    counts, census, factors, histogram,
    SIGNED: tl.constexpr, BINS: tl.constexpr, FIRST_BIN: tl.constexpr, BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Count coefficients of a block of memories, in some columns of a census's row, bin by bin."""
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < memories
    row = tl.load(census + tl.program_id(1))
    factor = tl.load(factors + tl.program_id(1)) + tl.zeros([BLOCK], tl.int64)
    begin = tl.program_id(2) * COLUMNS
    columns = tl.minimum(tl.load(counts + row).to(tl.int32), begin + COLUMNS)
    ahead = m + row * row_stride + first + begin.to(tl.int64) * stride
    for _step in range(begin, columns):
        value = _column(ahead, cell, inside)
        _add_to_bins(value, cell, factor, histogram, BINS, FIRST_BIN)
        if SIGNED:
            _add_to_bins(-value, cell + memories, factor, histogram, BINS, FIRST_BIN)
        ahead += stride


@triton.jit
def pass_over_lines(  # type: ignore[no-untyped-def]
    m, stride, size, memories, first_cell, sentences_in_all,
    starts, counts, sentences, priorities,
    bar_coefficients, bar_sentences, bar_priorities,
    totals, fires, counter, capacity,
    out_cells, out_coefficients, out_places,
    SIGNED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Walk a block of an expert's memories over its lines of ROWS sentences."""
    expert = tl.program_id(1)
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = own < size
    cell = first_cell + expert * size + own
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
    begin = tl.program_id(2) * ROWS
    for number in range(begin, tl.minimum(begin + ROWS, sentences_in_all)):
        row = expert * sentences_in_all + number
        lines = tl.load(counts + row).to(tl.int32)
        if lines > 0:
            ahead = m + tl.load(starts + row).to(tl.int64) * stride
            best = tl.zeros([BLOCK], tl.float32)
            minus_best = tl.zeros([BLOCK], tl.float32)
            for step in range(0, lines, 4):
                # All four are on their way from memory before the first is used.
                v0 = _column(ahead, own, inside)
                v1 = _column(ahead + stride, own, inside & (step + 1 < lines))
                v2 = _column(ahead + 2 * stride, own, inside & (step + 2 < lines))
                v3 = _column(ahead + 3 * stride, own, inside & (step + 3 < lines))
                ahead += 4 * stride
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
            sentence = tl.load(sentences + number)
            priority = tl.load(priorities + number)
            passes = (best > bar) | ((best == bar) & (sentence <= bar_sentence))
            passes = (passes | (priority <= bar_priority)) & (best > 0) & inside
            _append(
                best, cell, passes, row, counter, capacity,
                out_cells, out_coefficients, out_places,
            )  # fmt: skip
            if SIGNED:
                passes = (minus_best > minus_bar) | (
                    (minus_best == minus_bar) & (sentence <= minus_bar_sentence)
                )
                passes = (passes | (priority <= minus_bar_priority)) & (minus_best > 0) & inside
                _append(
                    minus_best, minus, passes, row, counter, capacity,
                    out_cells, out_coefficients, out_places,
                )  # fmt: skip
    _tally((sizes + sums) * 0.5, count, cell, inside, totals, fires, counter)
    if SIGNED:
        _tally((sizes - sums) * 0.5, minus_count, minus, inside, totals, fires, counter)


@triton.jit
def find_lines(  # type: ignore[no-untyped-def]
    m, stride, size, memories, first_cell, sentences_in_all,
    starts, counts, positions, weights, places, first, width, groups, groups_width,
    before, counter, capacity,
    out_cells, out_coefficients, out_places, out_groups, out_weights,
    GROUPED: tl.constexpr, PROGRAMS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Put places for the rows that `pass_over_lines` just appended, and the router's weights."""
    stop = tl.minimum(tl.load(counter), capacity)
    begin = tl.load(before) + tl.program_id(0) * SLOTS
    for start in range(begin, stop, PROGRAMS * SLOTS):
        slot = start + tl.arange(0, SLOTS)
        wanted = slot < stop
        cell = tl.load(out_cells + slot, mask=wanted, other=0)
        best = tl.load(out_coefficients + slot, mask=wanted, other=0.0)
        row = tl.load(out_places + slot, mask=wanted, other=0)
        lines = tl.load(counts + row, mask=wanted, other=0).to(tl.int32)
        line = tl.load(starts + row, mask=wanted, other=0).to(tl.int64)
        memory = tl.where(cell < memories, cell, cell - memories)
        best = tl.where(cell < memories, best, -best)
        ahead = line * stride + (memory - first_cell) % size
        at = tl.full([SLOTS], 65536, tl.int32)
        for step in range(tl.max(lines, 0)):
            here = _column(m, ahead, step < lines) == best  # which is not 0
            at = tl.minimum(at, tl.where(here, step, 65536))
            ahead += stride
        line += at
        number = row % sentences_in_all
        column = tl.load(positions + line, mask=wanted, other=0) - number * width - first
        place = tl.load(places + number, mask=wanted, other=0)
        tl.store(out_places + slot, place + column, mask=wanted)
        tl.store(out_weights + slot, tl.load(weights + line, mask=wanted, other=0.0), mask=wanted)
        if GROUPED:
            group = tl.load(groups + number * groups_width + column, mask=wanted, other=0)
            tl.store(out_groups + slot, group, mask=wanted)


@triton.jit
def add_bins_of_lines(  # type: ignore[no-untyped-def]
    m, stride, size, memories, first_cell, sentences_in_all,
    starts, counts, census, factors, histogram,
    SIGNED: tl.constexpr, BINS: tl.constexpr, FIRST_BIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the coefficients of a block of an expert's memories in one sentence, bin by bin."""
    expert = tl.program_id(1)
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = own < size
    cell = first_cell + expert * size + own
    row = expert * sentences_in_all + tl.load(census + tl.program_id(2))
    factor = tl.load(factors + tl.program_id(2)) + tl.zeros([BLOCK], tl.int64)
    ahead = m + tl.load(starts + row).to(tl.int64) * stride
    for _step in range(tl.load(counts + row).to(tl.int32)):
        value = _column(ahead, own, inside)
        _add_to_bins(value, cell, factor, histogram, BINS, FIRST_BIN)
        if SIGNED:
            _add_to_bins(-value, cell + memories, factor, histogram, BINS, FIRST_BIN)
        ahead += stride
