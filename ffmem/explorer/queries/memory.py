"""One memory: all that the store knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.pattern_results import PatternView, answer_patterns, pattern_results
from ffmem.explorer.queries.trigger_agreement import Agreement, agreement_table
from ffmem.store.lookup import TokenPush
from ffmem.store.memory_page import memory_page
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger

BARS = 16  # of the distribution of coefficients


@dataclass(frozen=True)
class TokenView:
    """A token that a value promotes or suppresses; `logit` is what a coefficient of 1 adds."""

    id: int
    text: str
    logit: float


@dataclass(frozen=True)
class TriggerView:
    """A prefix that fires the memory, cut where it was read: `before` + `last`, then `next`."""

    rank: int
    coefficient: float
    before: str
    last: str
    next: str
    rest: str


@dataclass(frozen=True)
class Bar:
    """Prefixes of the random sample with a coefficient from `low` to `high`."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class MemoryView:
    """One cell: a memory, or one sign of a gated memory."""

    address: str
    layer: int
    index: int
    sign: str
    fires: int
    prefixes: int
    mean: float
    largest: float
    probability: float
    promoted: tuple[TokenView, ...]
    suppressed: tuple[TokenView, ...]
    triggers: tuple[TriggerView, ...]
    stored_triggers: int
    distribution: tuple[Bar, ...]
    agreement: Agreement | None
    patterns: tuple[PatternView, ...]
    previous: str | None
    next: str | None
    opposite: str | None  # the other sign of a gated memory
    threshold: float | None = None  # the coefficient above which it fires, where that is not 0
    positive: int | None = None  # how often its coefficient is above 0, where that is more often


def cell_of(explored: StudyContext, address: str) -> Address:
    """The cell that an address names; a gated memory named without sign is its + cell."""
    return explored.store.cells.resolve(Address.parse(address))[0]


def memory_view(explored: StudyContext, cell: Address, shown: int = TRIGGERS_SHOWN) -> MemoryView:
    """All that can be read without the model; a few kilobytes, whatever the size of the store."""
    store, page = explored.store, memory_page(explored.lookup, cell)
    row, counts = store.cells.row(cell), page.counts
    known = agreement_table(store.folder, store.cells.count)
    return MemoryView(
        address=str(cell),
        layer=cell.layer,
        index=cell.index,
        sign=cell.sign,
        fires=counts.fires,
        prefixes=counts.prefixes,
        mean=counts.mean,
        largest=counts.largest,
        probability=float(explored.lookup.statistic("probability")[row]),
        promoted=token_views(page.promoted),
        suppressed=token_views(page.suppressed),
        triggers=trigger_views(page.triggers[:shown]),
        stored_triggers=len(page.triggers),
        distribution=distribution(page.sample.coefficients),
        agreement=None if known is None else known.of(row),
        patterns=memory_patterns(explored, str(cell)),
        previous=neighbour(explored, cell, -1),
        next=neighbour(explored, cell, +1),
        opposite=None if page.opposite is None else str(page.opposite),
        threshold=counts.threshold,
        positive=counts.positive,
    )


def memory_patterns(explored: StudyContext, address: str) -> tuple[PatternView, ...]:
    """Patterns that analyses have left, and those that people have given on pages or sheets."""
    found = pattern_results(explored.store.folder).of(address)
    if not explored.has_annotations:
        return found
    scan = explored.store.manifest.key.digest
    known = {(pattern.annotator, pattern.description) for pattern in found}
    said = [
        pattern
        for saying in explored.annotations.answers(scan, address)
        for pattern in answer_patterns(saying)
        if (pattern.annotator, pattern.description) not in known
    ]
    return tuple(sorted([*found, *said], key=lambda pattern: -pattern.covered))


def token_views(pushes: Sequence[TokenPush]) -> tuple[TokenView, ...]:
    """One end of a value's ranking."""
    return tuple(TokenView(push.token, push.text, push.logit) for push in pushes)


def trigger_views(triggers: Sequence[Trigger]) -> tuple[TriggerView, ...]:
    """The strongest triggers with their ranks."""
    return tuple(
        TriggerView(rank, one.coefficient, one.before, one.last, one.next, one.rest)
        for rank, one in enumerate(triggers, 1)
    )


def distribution(coefficients: NDArray[np.float32]) -> tuple[Bar, ...]:
    """The random sample of firing prefixes, by size of the coefficient."""
    sample = coefficients[coefficients > 0]
    if not len(sample):
        return ()
    step = float(sample.max()) / BARS
    counts = np.bincount(np.minimum(sample / step, BARS - 1).astype(np.int64), minlength=BARS)
    return tuple(
        Bar(place * step, (place + 1) * step, count) for place, count in enumerate(counts.tolist())
    )


def neighbour(explored: StudyContext, cell: Address, step: int) -> str | None:
    """The memory before or after, over all layers; None at either end."""
    cells, layers = explored.store.cells, list(explored.store.memories)
    index = cells.parts(cell.layer).index(cell) + step
    if 0 <= index < explored.store.memories[cell.layer]:
        return str(cells.parts(cell.layer).address(cell.layer, index, cell.sign))
    place = layers.index(cell.layer) + step
    if not 0 <= place < len(layers):
        return None
    layer = layers[place]
    last = explored.store.memories[layer] - 1
    return str(cells.parts(layer).address(layer, 0 if step > 0 else last, cell.sign))
