"""One memory: all that the store knows of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.pattern_results import (
    QUESTIONS,
    FindingView,
    PatternView,
    answer_patterns,
    finding_views,
    pattern_results,
)
from ffmem.store.lookup import TokenPush
from ffmem.store.memory_page import CoefficientBand, MemoryPage, memory_page
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger
from ffmem.store.weight_columns import ValueAgreement, agreement_table

BARS = 16  # of the distribution of coefficients
CLOCK_STEP = 1_000_000_000  # nanoseconds after which a further write has another time


@dataclass  # not frozen: a page has dozens, and a frozen one takes four times as long to make
class TokenView:
    """A token that a value promotes or suppresses; `logit` is what a coefficient of 1 adds.

    The value alone gives it `times_uniform` times the probability that every token has of itself.
    """

    id: int
    text: str
    logit: float
    times_uniform: float


@dataclass  # not frozen, as above
class TriggerView:
    """A prefix that fires the memory, cut where it was read: `before` + `last`, then `next`.

    It `agrees` where the next token is the one that the value promotes most.
    """

    rank: int
    coefficient: float
    sentence: int
    position: int
    agrees: bool
    before: str
    last: str
    next: str
    rest: str


@dataclass(frozen=True)
class BandView:
    """Prefixes with a coefficient from `low` to `high`, which are shares of the largest too.

    `sampled` of the random sample are among them; ranks of examples mean nothing.
    """

    low: float
    high: float
    low_share: float
    high_share: float
    sampled: int
    examples: tuple[TriggerView, ...]


@dataclass  # not frozen, as above
class Bar:
    """Prefixes of the random sample with a coefficient from `low` to `high`."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class HistogramView:
    """How many prefixes have a coefficient above an edge, up to the next; the last is the largest.

    They are `exact`, or estimated from a part of the sentences.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    exact: bool


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
    histogram: HistogramView | None  # None for a scan of an earlier version, or a dead memory
    distribution: tuple[Bar, ...]  # of the random sample
    agreement: ValueAgreement | None
    patterns: tuple[PatternView, ...]
    previous: str | None
    next: str | None
    opposite: str | None  # the other sign of a gated memory
    hook: str | None  # the same activation in TransformerLens, whose layers count from 0
    uniform: float  # the probability of every token where a value says nothing
    sampled: int  # random prefixes among those that fire it
    bands: tuple[BandView, ...]
    findings: tuple[FindingView, ...]  # what patterns on request are worth
    explainer: str | None  # the language model that can be asked for patterns
    weights: dict[str, float | str]  # of its keys and values in numbers, where analysed
    threshold: float | None = None  # the coefficient above which it fires, where that is not 0
    positive: int | None = None  # how often its coefficient is above 0, where that is more often
    questions: int = QUESTIONS  # that it is asked for an explanation, about
    part: str = ""  # its expert, as in an address
    routed: int | None = None  # prefixes for which the router chose its expert
    router_weight: float | None = None  # mean over them


def cell_of(context: StudyContext, address: str) -> Address:
    """The cell that an address names; a gated memory named without sign is its + cell."""
    return context.store.cells.resolve(Address.guess(address) or Address.parse(address))[0]


def memory_view(context: StudyContext, cell: Address, shown: int = TRIGGERS_SHOWN) -> MemoryView:
    """All that can be read without the model; a few kilobytes, whatever the size of the store."""
    store, page = context.store, memory_page(context.lookup, cell)
    row, counts = store.cells.row(cell), page.counts
    triggers, bands = page.examples(shown)
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
        probability=page.probability,
        promoted=token_views(page, page.promoted),
        suppressed=token_views(page, page.suppressed),
        triggers=trigger_views(page, triggers),
        stored_triggers=len(page.triggers),
        histogram=histogram_view(page),
        distribution=distribution(page.sample.coefficients),
        agreement=None if known is None else known.of(row),
        patterns=memory_patterns(context, str(cell)),
        previous=neighbour(context, cell, -1),
        next=neighbour(context, cell, +1),
        opposite=None if page.opposite is None else str(page.opposite),
        hook=cell.hook,
        uniform=page.uniform,
        sampled=len(page.sample),
        bands=band_views(page, bands),
        findings=finding_views(store, str(cell)),
        explainer=None if context.explainer is None else context.explainer.name,
        weights=page.weights,
        threshold=counts.threshold,
        positive=counts.positive,
        part=cell.part,
        routed=None if counts.expert is None else counts.expert.routed,
        router_weight=None if counts.expert is None else counts.expert.mean_weight,
    )


def memory_patterns(context: StudyContext, address: str) -> tuple[PatternView, ...]:
    """Patterns that analyses have left, and those that people have given on pages or sheets."""
    found = without_repeats(pattern_results(context.store.folder).of(address))
    if not context.has_annotations:
        return found
    by_people = people_patterns(context, address)
    if not by_people:
        return found
    known = {(pattern.annotator, pattern.description) for pattern in found}
    new = [one for one in by_people if (one.annotator, one.description) not in known]
    return tuple(sorted([*found, *new], key=lambda pattern: -pattern.covered))


def people_patterns(context: StudyContext, address: str) -> tuple[PatternView, ...]:
    """What people say of one memory; of a file all answers are read at once, not for each page."""
    mark = file_mark(Path(context.database or context.store.folder.annotations))
    if mark is not None:
        return _all_answers(context, mark).get(address, ())
    scan = context.store.manifest.key.digest
    answers = context.annotations.answers(scan, address)
    return tuple(pattern for answer in answers for pattern in answer_patterns(answer))


def file_mark(file: Path) -> tuple[int, int] | None:
    """The time and size of a file; None if it is not one, or so new that a change may not show."""
    try:
        found = file.stat()
    except OSError:
        return None
    settled = time.time_ns() - found.st_mtime_ns > CLOCK_STEP
    return (found.st_mtime_ns, found.st_size) if settled else None


@lru_cache(maxsize=2)
def _all_answers(
    context: StudyContext, _mark: tuple[int, int]
) -> dict[str, tuple[PatternView, ...]]:
    found: dict[str, list[PatternView]] = defaultdict(list)
    for answer in context.annotations.answers(context.store.manifest.key.digest):
        if answer.sheet.key is not None:
            found[answer.sheet.key] += answer_patterns(answer)
    return {key: tuple(patterns) for key, patterns in found.items()}


def without_repeats(patterns: Sequence[PatternView]) -> tuple[PatternView, ...]:
    """Each annotator's patterns once, though several results may have them."""
    return tuple({(one.annotator, one.description): one for one in patterns}.values())


def token_views(page: MemoryPage, pushes: Sequence[TokenPush]) -> tuple[TokenView, ...]:
    """One end of a value's ranking."""
    return tuple(
        TokenView(push.token, push.text, push.logit, times)
        for push, times in zip(pushes, page.times_uniform(pushes), strict=True)
    )


def trigger_views(page: MemoryPage, triggers: Sequence[Trigger]) -> tuple[TriggerView, ...]:
    """Triggers with their ranks."""
    top = page.promoted[0].text if page.promoted else None
    return tuple(
        TriggerView(
            rank=rank,
            coefficient=one.coefficient,
            sentence=one.sentence,
            position=one.position,
            agrees=bool(one.next) and one.next == top,
            before=one.before,
            last=one.last,
            next=one.next,
            rest=one.rest,
        )
        for rank, one in enumerate(triggers, 1)
    )


def band_views(page: MemoryPage, bands: Sequence[CoefficientBand]) -> tuple[BandView, ...]:
    """Examples by size of the coefficient."""
    largest = page.counts.largest
    return tuple(
        BandView(
            low=band.low * largest,
            high=band.high * largest,
            low_share=band.low,
            high_share=band.high,
            sampled=band.sampled,
            examples=trigger_views(page, band.examples),
        )
        for band in bands
    )


def histogram_view(page: MemoryPage) -> HistogramView | None:
    """The histogram of a memory that fires."""
    found = page.histogram
    return HistogramView(found.edges, found.counts, found.exact) if found and found.counts else None


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


def neighbour(context: StudyContext, cell: Address, step: int) -> str | None:
    """The memory before or after, over all layers; None at either end."""
    cells, layers = context.store.cells, list(context.store.memories)
    index = cells.parts(cell.layer).index(cell) + step
    if 0 <= index < context.store.memories[cell.layer]:
        return str(cells.parts(cell.layer).address(cell.layer, index, cell.sign))
    place = layers.index(cell.layer) + step
    if not 0 <= place < len(layers):
        return None
    layer = layers[place]
    last = context.store.memories[layer] - 1
    return str(cells.parts(layer).address(layer, 0 if step > 0 else last, cell.sign))
