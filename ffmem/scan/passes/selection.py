"""Selects, after a pass, the few prefixes that may enter a layer's state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ffmem.scan.batch_rows import BatchRows
from ffmem.scan.candidates import Candidates
from ffmem.scan.hashing import NO_PRIORITY
from ffmem.scan.passes.torch_pass import LayerPass, TorchPass
from ffmem.scan.settings import ScanSettings
from ffmem.scan.triggers import Thresholds, place_priorities

FULL_PASS_SHARE = (
    0.04  # share of maxima above which one more pass finds positions faster than look-ups
)
GATHER_SIZE = 2**20  # coefficients gathered at once


@dataclass(frozen=True)
class PassResult:
    """One sign's coefficients, what a pass found in them, its cells' thresholds, the first cell."""

    m: Tensor
    rows: BatchRows
    found: LayerPass
    sign: int
    thresholds: Thresholds
    offset: int


def candidates(
    result: PassResult, settings: ScanSettings, torch_pass: TorchPass
) -> Candidates | None:
    """All that may enter, and little that may not."""
    rows, maxima, thresholds = result.rows, result.found.maxima, result.thresholds
    passes = result.found.passes
    if passes is None:
        passes = _passing(maxima, rows, thresholds)
    simple = settings.dedupe == "none" and settings.per_sentence == "max"
    if simple and count_set(passes) > len(thresholds.coefficients) * settings.top:
        thresholds = _raise_thresholds(thresholds, maxima, rows, settings)
        passes = _passing(maxima, rows, thresholds)
    row, memory = indices_set(passes)
    coefficients = elements_at(maxima, row * maxima.shape[1] + memory)
    cell = _cells(result, row, memory)
    tied = coefficients == elements_at(thresholds.coefficients, cell)
    if count_set(tied):
        late = tied & (elements_at(rows.places, row) >= elements_at(thresholds.places, cell))
        kept = ~late | (
            elements_at(rows.priorities, row) <= elements_at(thresholds.priorities, cell)
        )
        row, memory, coefficients = row[kept], memory[kept], coefficients[kept]
    if not len(row):
        return None
    if settings.per_sentence == "all":
        return _all_prefixes(
            result, (row, memory, thresholds.at(_cells(result, row, memory))), settings
        )
    return _with_places(result, row, _steps(result, row, memory, torch_pass), memory, coefficients)


def _cells(result: PassResult, row: Tensor, memory: Tensor) -> Tensor:
    """The cells of some memories, counted from the pass's first one, expert by expert."""
    routing = result.rows.routing
    if routing is None:
        return memory
    return elements_at(routing.experts, row) * result.found.maxima.shape[1] + memory


def _passing(maxima: Tensor, rows: BatchRows, thresholds: Thresholds) -> Tensor:
    """Flags of the maxima that reach a bar, or fire in a row drawn for the sample."""
    if rows.routing is not None:
        below, limits = (
            bar.view(-1, maxima.shape[1])[rows.routing.experts]
            for bar in (thresholds.below, thresholds.priorities)
        )
        return (maxima > below) | ((maxima > 0) & (rows.priorities[:, None] <= limits))
    passes = greater(maxima, thresholds.below)
    drawn = (rows.priorities <= thresholds.priorities.amax()).nonzero()[:, 0]
    if len(drawn):
        passes[drawn] |= (maxima[drawn] > 0) & (
            rows.priorities[drawn, None] <= thresholds.priorities
        )
    return passes


def _steps(result: PassResult, row: Tensor, memory: Tensor, torch_pass: TorchPass) -> Tensor:
    """How many columns after its row's first each largest coefficient first occurs."""
    found = result.found
    if found.steps is not None:
        return elements_at(found.steps, row * found.steps.shape[1] + memory).long()
    if len(row) > FULL_PASS_SHARE * found.maxima.numel() and result.rows.routing is None:
        return torch_pass.positions(result.m, result.rows, result.sign, found.maxima)[row, memory]
    return _prefix_steps(result, row, memory)


def _raise_thresholds(
    thresholds: Thresholds, maxima: Tensor, rows: BatchRows, settings: ScanSettings
) -> Thresholds:
    """Bars raised to what this batch alone would fill the slots with, expert by expert."""
    if rows.routing is None:
        return _raise_of_one(thresholds, maxima, rows.priorities, settings)
    size = maxima.shape[1]
    numbers = torch.arange(len(thresholds.coefficients) // size + 1, device=maxima.device)
    edges = torch.searchsorted(rows.routing.experts, numbers).tolist()
    parts = [
        _raise_of_one(
            thresholds.at(slice(expert * size, (expert + 1) * size)),
            maxima[first:last],
            rows.priorities[first:last],
            settings,
        )
        for expert, (first, last) in enumerate(pairwise(edges))
    ]
    return Thresholds(
        torch.cat([one.coefficients for one in parts]),
        torch.cat([one.places for one in parts]),
        torch.cat([one.priorities for one in parts]),
    )


def _raise_of_one(
    thresholds: Thresholds, maxima: Tensor, priorities: Tensor, settings: ScanSettings
) -> Thresholds:
    """The same for a dense layer, or for the rows of one expert."""
    if len(maxima) < settings.top:
        return thresholds
    strongest = -nth_smallest(-maxima, settings.top)
    higher = strongest > thresholds.coefficients
    coefficients = torch.where(higher, strongest, thresholds.coefficients)
    # At a raised bar the tied places are not known yet: all of them pass.
    places = torch.where(higher, torch.iinfo(torch.int64).max, thresholds.places)
    limits = thresholds.priorities
    if len(maxima) > settings.sample > 0:
        firing = torch.where(maxima > 0, priorities[:, None], NO_PRIORITY)
        limits = torch.minimum(limits, nth_smallest(firing, settings.sample))
    return Thresholds(coefficients, places, limits)


def _prefix_coefficients(result: PassResult, row: Tensor, memory: Tensor) -> Tensor:
    """The coefficients of each row's admissible prefixes for its memory: [n, most].

    In rows with fewer prefixes than most, the last one is repeated; the first largest is then
    still where it was.
    """
    rows = result.rows
    width, memories = result.m.shape[-2:]
    steps = torch.arange(max(rows.columns), device=row.device)
    columns = torch.minimum(steps, rows.counts[row, None] - 1)
    starts = elements_at(rows.starts(width), row) * memories + memory
    picked = torch.add(starts[:, None], columns, alpha=memories).flatten()
    found = result.m.reshape(-1).index_select(0, picked).view_as(columns).float()
    return found if result.sign > 0 else -found


def _prefix_steps(result: PassResult, row: Tensor, memory: Tensor) -> Tensor:
    pieces = max(1, GATHER_SIZE // max(result.rows.columns))
    parts = zip(row.split(pieces), memory.split(pieces), strict=True)
    return torch.cat([_prefix_coefficients(result, r, c).argmax(1) for r, c in parts])


def _all_prefixes(
    result: PassResult, passing: tuple[Tensor, Tensor, Thresholds], settings: ScanSettings
) -> Candidates:
    """Every prefix that may enter of the rows and memories that passed with their maximum."""
    found = []
    row, memory, thresholds = passing
    pieces = max(1, GATHER_SIZE // max(result.rows.columns))
    for part in torch.arange(len(row), device=row.device).split(pieces):
        r, c, bar = row[part], memory[part], thresholds.at(part)
        values = _prefix_coefficients(result, r, c)
        steps = torch.arange(values.shape[1], device=row.device)
        inside = steps < result.rows.counts[r, None]
        there = torch.minimum(steps, result.rows.counts[r, None] - 1)
        priority = place_priorities(_places(result.rows, r[:, None], there), settings)
        enters = (values >= bar.coefficients[:, None]) | (priority <= bar.priorities[:, None])
        which, step = (inside & enters & (values > 0)).nonzero(as_tuple=True)
        found.append(_with_places(result, r[which], step, c[which], values[which, step]))
    return Candidates.join(found)


def _with_places(
    result: PassResult, row: Tensor, steps: Tensor, memory: Tensor, coefficients: Tensor
) -> Candidates:
    rows = result.rows
    groups = None if rows.groups is None else rows.groups[row, steps]
    if rows.routing is not None and rows.routing.groups is not None:
        groups = elements_at(rows.routing.groups, elements_at(rows.routing.starts, row) + steps)
    weights = None
    if rows.routing is not None:
        lines = elements_at(rows.routing.starts, row) + steps
        weights = elements_at(rows.routing.weights, lines)
    cells = (_cells(result, row, memory) + result.offset).to(torch.int32)
    return Candidates(cells, coefficients, _places(rows, row, steps), groups, weights)


def _places(rows: BatchRows, row: Tensor, steps: Tensor) -> Tensor:
    """The places of some prefixes, by their rows and the steps from the first of each."""
    if rows.routing is None:
        return elements_at(rows.places, row) + steps
    return elements_at(rows.routing.places, elements_at(rows.routing.starts, row) + steps)


def greater(numbers: Tensor, than: Tensor | float) -> Tensor:
    """True where numbers are above others, in the numbers' shape."""
    if numbers.device.type != "cpu":
        return numbers > than
    other = than.numpy() if isinstance(than, Tensor) else than
    return torch.from_numpy(np.greater(numbers.numpy(), other))


def count_set(flags: Tensor) -> int:
    """How many flags are set."""
    if flags.device.type != "cpu":
        return int(flags.sum())
    return int(np.count_nonzero(flags.numpy()))


def indices_set(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every flag that is set, in order: flags are [rows, columns]."""
    if flags.device.type != "cpu":
        rows, columns = flags.nonzero(as_tuple=True)
        return rows, columns
    row, column = np.divmod(np.flatnonzero(flags.numpy()), flags.shape[1])
    return torch.from_numpy(row), torch.from_numpy(column)


def elements_at(numbers: Tensor, indices: Tensor) -> Tensor:
    """The numbers at some places, counted through all dimensions."""
    if numbers.device.type != "cpu":
        return numbers.take(indices)
    return torch.from_numpy(numbers.numpy().take(indices.numpy()))


def nth_smallest(table: Tensor, n: int) -> Tensor:
    """The n-th smallest number of each column, counted from 1."""
    if table.device.type != "cpu":
        return table.topk(n, dim=0, largest=False).values[-1]
    return torch.from_numpy(np.partition(table.numpy(), n - 1, axis=0)[n - 1])
