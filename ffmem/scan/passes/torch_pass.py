"""One pass over a layer's coefficients without a GPU's kernel.

On the CPU a loop that numba compiled reads each coefficient once. In half precision and on other
devices plain torch does it, in pieces that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.scan.batch_rows import BatchRows
from ffmem.scan.settings import BINS, LOWEST, ScanSettings
from ffmem.scan.tallies import steps_of
from ffmem.scan.triggers import Sample, Thresholds, Triggers

PIECE_BYTES = (
    7 * 2**17
)  # bytes of a piece for each CPU thread: with its source it fits a core's cache
DEVICE_PIECE_BYTES = 2**28
ALONE = 2**12  # candidates that one thread puts in sooner than another wakes up
BINNING_SIZE = 2**22  # coefficients put into bins at once without the compiled loop


@dataclass(frozen=True)
class LayerPass:
    """Per row and memory the largest coefficient, not below 0; per memory its count and sum.

    Where they come for nothing, also the columns from a row's first to its maximum, and which
    maxima pass a bar. What is [b, memories] is good until the next pass.
    """

    maxima: Tensor  # [b, memories], float32
    fires: Tensor  # [memories], int64; those of experts one behind the other
    sums: Tensor  # [memories], float64
    steps: Tensor | None = None  # [b, memories], int32
    passes: Tensor | None = None  # [b, memories], flags


class TorchPass:
    """Reads coefficients of layers of one size."""

    def __init__(self, memories: int, device: torch.device) -> None:
        on_cpu = device.type == "cpu"
        size = PIECE_BYTES * torch.get_num_threads() if on_cpu else DEVICE_PIECE_BYTES
        self.columns = max(1, size // (4 * memories))
        self.memories = memories
        self.device = device
        self._buffer = torch.empty(0, device=device)
        self._ones = torch.empty(0, device=device)
        self._walk = compiled_loop() if on_cpu else None
        self._pool = ThreadPoolExecutor(torch.get_num_threads()) if self._walk else None
        self._found = _LoopOutput.of(0, memories)

    def run(self, m: Tensor, rows: BatchRows, sign: int, thresholds: Thresholds) -> LayerPass:
        """Maxima, counts and sums of the coefficients with one sign: +1 or -1."""
        if self._walk is not None and m.dtype == torch.float32:
            return self._run_loop(m, rows, sign, thresholds)
        if rows.routing is not None:
            return self._run_lines(m, rows, sign, thresholds)
        maxima = torch.zeros(len(rows), self.memories, device=self.device)
        fires = torch.zeros(1, self.memories, device=self.device)
        sums = torch.zeros(1, self.memories, device=self.device)
        for start, stop, widest in rows.chunks(self.columns):
            piece = self._clip(m, rows, (start, stop, widest), sign)
            flat = piece.view(-1, self.memories)
            ones = self._ones[:, : flat.shape[0]]
            torch.amax(piece, 1, out=maxima[start:stop])
            sums.addmm_(ones, flat)
            piece.gt_(0)
            fires.addmm_(ones, flat)  # whole numbers below 2**24: exact
        return LayerPass(maxima, fires[0].long(), sums[0].double())

    def _run_loop(self, m: Tensor, rows: BatchRows, sign: int, thresholds: Thresholds) -> LayerPass:
        """The same, steps and passes too, in one read, some rows for each thread."""
        assert self._pool is not None
        threads, memories = torch.get_num_threads(), self.memories
        experts = len(thresholds.places) // memories
        if len(self._found.maxima) < len(rows):
            self._found = _LoopOutput.of(len(rows), memories)
        found = self._found.first(len(rows))
        sums = np.zeros((threads, experts, memories), np.float32)
        fires = np.zeros((threads, experts, memories), np.int32)
        source, counts = m.contiguous().numpy().reshape(-1, memories), rows.counts.numpy()
        starts, priorities = rows.starts(m.shape[1]).numpy(), rows.priorities.numpy()
        own_expert = np.zeros_like(starts) if rows.routing is None else rows.routing.experts.numpy()
        limits = [
            bar.numpy().reshape(experts, -1) for bar in (thresholds.below, thresholds.priorities)
        ]
        edges = [len(rows) * thread // threads for thread in range(threads + 1)]

        def walk(thread: int) -> None:
            assert self._walk is not None
            own = slice(edges[thread], edges[thread + 1])
            about = starts[own], counts[own], priorities[own], own_expert[own], *limits
            results = found.maxima[own], found.steps[own], found.passes[own]
            self._walk(source, np.float32(sign), *about, *results, sums[thread], fires[thread])

        others = [self._pool.submit(walk, thread) for thread in range(1, threads)]
        walk(0)  # here: a thread that sleeps takes long to wake up
        for other in others:
            other.result()
        return LayerPass(
            torch.from_numpy(found.maxima),
            torch.from_numpy(fires.sum(0, dtype=np.int64)).flatten(),
            torch.from_numpy(sums.sum(0, dtype=np.float64)).flatten(),
            torch.from_numpy(found.steps),
            torch.from_numpy(found.passes),
        )

    def _run_lines(
        self, m: Tensor, rows: BatchRows, sign: int, thresholds: Thresholds
    ) -> LayerPass:
        """The same for the lines of experts: a matrix of which line belongs to which adds up."""
        assert rows.routing is not None
        row = torch.arange(len(rows), device=self.device).repeat_interleave(rows.counts)
        first = (rows.counts.cumsum(0) - rows.counts)[row]
        line = rows.routing.starts[row] + torch.arange(len(row), device=self.device) - first
        piece = (sign * m[line].float()).clamp_min_(0)
        maxima = torch.zeros(len(rows), self.memories, device=self.device)
        maxima.scatter_reduce_(0, row[:, None].expand_as(piece), piece, "amax")
        experts = len(thresholds.places) // self.memories
        own = torch.zeros(experts, len(row), device=self.device)
        own[rows.routing.experts[row], torch.arange(len(row), device=self.device)] = 1
        fires = own @ (piece > 0).float()  # whole numbers below 2**24: exact
        return LayerPass(maxima, fires.flatten().long(), (own @ piece).flatten().double())

    @property
    def has_loop(self) -> bool:
        """Whether the compiled loop reads coefficients of single precision."""
        return self._walk is not None

    def fold(self, found: LayerPass, rows: BatchRows, triggers: Triggers, sample: Sample) -> None:
        """Put what passes into the slots of its cells, in place; only after the compiled loop."""
        from ffmem.scan.passes.numba_pass import fold_passing

        assert found.steps is not None
        assert found.passes is not None
        maxima, steps, passes = (t.numpy() for t in (found.maxima, found.steps, found.passes))
        about = rows.places.numpy(), rows.priorities.numpy()
        slots = tuple(f.numpy() for f in triggers.fields), tuple(f.numpy() for f in sample.fields)
        self._share(
            lambda own: fold_passing(maxima, steps, passes, *about, *slots, own),
            bool(np.count_nonzero(passes) > ALONE),
        )

    def _share(self, work: Callable[[tuple[int, int]], None], many: bool) -> None:
        """Do some work on the memories from a first to a last, by all threads if it is much."""
        assert self._pool is not None
        threads = torch.get_num_threads() if many else 1
        edges = [self.memories * thread // threads for thread in range(threads + 1)]
        parts = list(zip(edges[:-1], edges[1:], strict=True))
        others = [self._pool.submit(work, part) for part in parts[1:]]
        work(parts[0])  # here: a thread that sleeps takes long to wake up
        for other in others:
            other.result()

    def count_bins(self, m: Tensor, rows: BatchRows, sign: int, histogram: Tensor) -> None:
        """Add the census's coefficients of one sign to a histogram [cells, BINS], in place."""
        if not len(rows.census):
            return
        starts, counts = rows.starts(m.shape[1])[rows.census], rows.counts[rows.census]
        experts = torch.zeros_like(starts)
        if rows.routing is not None:
            experts = rows.routing.experts[rows.census]
        each = (starts, counts, rows.factors, experts)
        if self._walk is not None and m.dtype == torch.float32:
            self._count_with_numba(m, sign, each, histogram)
            return
        row = torch.arange(len(counts), device=self.device).repeat_interleave(counts)
        first = counts.cumsum(0) - counts
        lines = (starts - first)[row] + torch.arange(len(row), device=self.device)
        flat, source = histogram.view(-1), m.reshape(-1, self.memories)
        for some in torch.arange(len(row), device=self.device).split(
            max(1, BINNING_SIZE // self.memories)
        ):
            piece = (sign * source[lines[some]].float()).contiguous()
            cell = (experts * self.memories)[row[some], None] + torch.arange(
                self.memories, device=self.device
            )
            slot = cell * BINS + bin_numbers(piece)
            factor = torch.where(piece > 0, rows.factors[row[some], None], 0)
            flat.index_add_(0, slot.flatten(), factor.flatten())

    def _count_with_numba(
        self, m: Tensor, sign: int, each: tuple[Tensor, ...], histogram: Tensor
    ) -> None:
        """The same by the compiled loop, some memories for each thread."""
        from ffmem.scan.passes.numba_pass import count_bins

        bits = m.contiguous().numpy().reshape(-1, self.memories).view(np.int32)
        into = histogram.numpy().reshape(-1, self.memories, BINS)
        about = [column.numpy() for column in each]
        self._share(lambda own: count_bins(bits, sign, *about, into, own), True)

    def positions(self, m: Tensor, rows: BatchRows, sign: int, maxima: Tensor) -> Tensor:
        """How many columns after the first each maximum first occurs: [b, memories]."""
        found = torch.zeros(len(rows), self.memories, device=self.device)
        for start, stop, widest in rows.chunks(self.columns):
            piece = self._clip(m, rows, (start, stop, widest), sign)
            torch.eq(piece, maxima[start:stop, None], out=piece)
            piece *= torch.arange(widest, 0, -1, device=self.device)[:, None]
            found[start:stop] = widest - piece.amax(1)
        return found.long()

    def _clip(self, m: Tensor, rows: BatchRows, chunk: tuple[int, int, int], sign: int) -> Tensor:
        """The chunk's coefficients of one sign in the buffer, 0 where not admissible.

        Everything else is read from there: a second look at memory out of the cache would cost as
        much as the first.
        """
        start, stop, widest = chunk
        source = m[start:stop, rows.first : rows.first + widest]
        piece = self._room((stop - start) * widest).view(stop - start, widest, self.memories)
        if sign < 0:
            torch.neg(piece.copy_(source), out=piece).clamp_min_(0)
        elif m.dtype == torch.float32:
            torch.clamp_min(source, 0, out=piece)
        else:
            piece.copy_(source).clamp_min_(0)
        if self.device.type != "cpu":
            outside = torch.arange(widest, device=self.device) >= rows.counts[start:stop, None]
            return piece.masked_fill_(outside[:, :, None], 0)
        for row in range(start, stop):
            if rows.columns[row] < widest:
                piece[row - start, rows.columns[row] :] = 0
        return piece

    def _room(self, columns: int) -> Tensor:
        if self._ones.numel() < columns:
            size = max(columns, self.columns)
            self._buffer = torch.empty(size, self.memories, device=self.device)
            self._ones = torch.ones(1, size, device=self.device)
        return self._buffer[:columns]


class CompiledPass:
    """Reads one layer's coefficients on the CPU and brings its state up to date, in place."""

    def __init__(self, memories: int, settings: ScanSettings, torch_pass: TorchPass) -> None:
        self._memories, self._settings, self._torch_pass = memories, settings, torch_pass

    def reads(self, m: Tensor) -> bool:
        """Whether these are coefficients that the compiled loop reads."""
        return m.dtype == torch.float32

    def take_in(
        self,
        m: Tensor,
        rows: BatchRows,
        state: tuple[Triggers, Sample, Thresholds],
        tallies: tuple[Tensor, Tensor],
    ) -> None:
        """Take in a batch; `tallies` are fires and totals."""
        triggers, sample, thresholds = state
        for sign, cells in self._signs():
            found = self._torch_pass.run(m, rows, sign, thresholds.at(cells))
            tallies[0][cells] += found.fires
            tallies[1][cells] += steps_of(found.sums)
            own = triggers.at(cells), sample.at(cells)
            self._torch_pass.fold(found, rows, *own)
            raised = Thresholds.of(*own)
            thresholds.coefficients[cells] = raised.coefficients
            thresholds.places[cells] = raised.places
            thresholds.priorities[cells] = raised.priorities

    def count_bins(self, m: Tensor, rows: BatchRows, histogram: Tensor) -> None:
        """Add the census's coefficients to a histogram [cells, BINS], in place."""
        for sign, cells in self._signs():
            self._torch_pass.count_bins(m, rows, sign, histogram[cells])

    def is_finite(self) -> bool:
        """Whether all coefficients so far were numbers: others are refused at once."""
        return True

    def _signs(self) -> list[tuple[int, slice]]:
        size = self._memories
        minus = [(-1, slice(size, 2 * size))] if self._settings.signed else []
        return [(1, slice(0, size)), *minus]


@dataclass(frozen=True)
class _LoopOutput:
    """What the compiled loop finds, each [b, memories]; kept, because fresh memory is slow."""

    maxima: NDArray[np.float32]
    steps: NDArray[np.int32]
    passes: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: int, memories: int) -> _LoopOutput:
        shape = (rows, memories)
        return cls(np.empty(shape, np.float32), np.empty(shape, np.int32), np.empty(shape, bool))

    def first(self, rows: int) -> _LoopOutput:
        return _LoopOutput(self.maxima[:rows], self.steps[:rows], self.passes[:rows])


def bin_numbers(coefficients: Tensor) -> Tensor:
    """The bin of each float32 coefficient; anything for those that are not above zero.

    Floats above zero order as their bits do, and the upper bits are the exponent; one step down
    first, so that a bin holds its upper edge and not its lower one.
    """
    return ((coefficients.view(torch.int32) - 1 >> 23) - (127 + LOWEST)).clamp_(0, BINS - 1).long()


def compiled_loop() -> Callable[..., None]:
    """The compiled loop; numba is imported when it is first asked for."""
    from ffmem.scan.passes.numba_pass import numba_pass  # numba is slow to import

    return numba_pass
