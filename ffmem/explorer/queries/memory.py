"""One memory: all that the store knows of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ffmem.address import Address
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.pattern_results import PatternView, answer_patterns, pattern_results
from ffmem.explorer.queries.trigger_agreement import Agreement, agreement_table
from ffmem.store.parquet_tables import End

SHOWN = 25  # triggers on a page, as many as the paper shows to people
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


def cell_of(explored: StudyContext, address: str) -> Address:
    """The cell that an address names; a gated memory named without sign is its + cell."""
    return explored.store.cells(Address.parse(address))[0]


def memory_view(explored: StudyContext, cell: Address, shown: int = SHOWN) -> MemoryView:
    """All that can be read without the model; a few kilobytes, whatever the size of the store."""
    store, lookup = explored.store, explored.lookup
    row, counts = store.row(cell), store.counts(cell)
    triggers, stored = trigger_views(explored, cell, shown)
    known = agreement_table(explored.folder, lookup.cells)
    return MemoryView(
        address=str(cell),
        layer=cell.layer,
        index=cell.index,
        sign=cell.sign,
        fires=counts.fires,
        prefixes=counts.prefixes,
        mean=counts.mean,
        largest=counts.largest,
        probability=float(lookup.statistic("probability")[row]),
        promoted=token_views(explored, cell, "promoted"),
        suppressed=token_views(explored, cell, "suppressed"),
        triggers=triggers,
        stored_triggers=stored,
        distribution=distribution(explored, row),
        agreement=None if known is None else known.of(row),
        patterns=memory_patterns(explored, str(cell)),
        previous=neighbour(explored, cell, -1),
        next=neighbour(explored, cell, +1),
        opposite=str(opposite(cell)) if cell.sign else None,
    )


def memory_patterns(explored: StudyContext, address: str) -> tuple[PatternView, ...]:
    """Patterns that analyses have left, and those that people have given on pages or sheets."""
    found = pattern_results(explored.folder).of(address)
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


def token_views(explored: StudyContext, cell: Address, end: End) -> tuple[TokenView, ...]:
    """One end of a value's ranking."""
    pushes = explored.lookup.value_tokens(cell, end)
    return tuple(TokenView(push.token, push.text, push.logit) for push in pushes)


def trigger_views(
    explored: StudyContext, cell: Address, count: int
) -> tuple[tuple[TriggerView, ...], int]:
    """The strongest triggers, and how many the store has."""
    found, stored = explored.store.strongest(cell, count)
    shown = tuple(
        TriggerView(rank, one.coefficient, one.before, one.last, one.next, one.rest)
        for rank, one in enumerate(found, 1)
    )
    return shown, stored


def distribution(explored: StudyContext, row: int) -> tuple[Bar, ...]:
    """The random sample of firing prefixes, by size of the coefficient."""
    sample = np.asarray(explored.store.array("sample_coefficients")[row])
    sample = sample[sample > 0]
    if not len(sample):
        return ()
    step = float(sample.max()) / BARS
    counts = np.bincount(np.minimum(sample / step, BARS - 1).astype(np.int64), minlength=BARS)
    return tuple(
        Bar(place * step, (place + 1) * step, count) for place, count in enumerate(counts.tolist())
    )


def opposite(cell: Address) -> Address:
    """The other sign of a gated memory."""
    return Address(cell.layer, cell.index, "-" if cell.sign == "+" else "+")


def neighbour(explored: StudyContext, cell: Address, step: int) -> str | None:
    """The memory before or after, over all layers; None at either end."""
    index = cell.index + step
    layers = list(explored.store.memories)
    if 0 <= index < explored.store.memories[cell.layer]:
        return str(Address(cell.layer, index, cell.sign))
    place = layers.index(cell.layer) + step
    if not 0 <= place < len(layers):
        return None
    layer = layers[place]
    last = explored.store.memories[layer] - 1
    return str(Address(layer, 0 if step > 0 else last, cell.sign))
