"""The slow, obvious way to a layer's state: every prefix in a list, sorted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from ffmem.corpus.shards import EMPTY
from ffmem.scan.hashing import NO_PRIORITY, census_factors, priorities
from ffmem.scan.layer_scan import LayerState
from ffmem.scan.settings import BINS, LOWEST, UNIT, ScanSettings
from ffmem.scan.tallies import Tallies
from ffmem.scan.triggers import Sample, Triggers


@dataclass(frozen=True)
class FakeBatch:
    tokens: Tensor
    lengths: Tensor
    sentences: Tensor
    bos: int
    content: Tensor | None = None


@dataclass(frozen=True)
class Reading:
    """A sentence: its number, tokens, and the coefficients after each: [n + 1, memories].

    Row p of `m` belongs to the prefix of p tokens, so row 0 is what BOS alone gives. `content` says
    with which tokens a prefix may end, where not all will do.
    """

    number: int
    tokens: list[int]
    m: Tensor
    content: list[bool] | None = None


def readings(
    generator: torch.Generator, count: int, memories: int, longest: int = 6
) -> list[Reading]:
    """Random sentences with few distinct coefficients and tokens, so that ties abound."""
    made = []
    for number in torch.randperm(3 * count, generator=generator)[:count].tolist():
        n = int(torch.randint(1, longest + 1, (), generator=generator))
        tokens = torch.randint(0, 2, (n,), generator=generator).tolist()
        m = torch.randint(-3, 5, (n + 1, memories), generator=generator) / 4
        made.append(Reading(number, tokens, m))
    return made


def far_readings(generator: torch.Generator, count: int, memories: int) -> list[Reading]:
    """Sentences from all over a large corpus, with coefficients of every size and both signs.

    All of the first half of the sentences are in the census, of the others few. Sums of a batch are
    whole steps of UNIT, in any order of adding, because a memory has one size.
    """
    made = []
    sizes = 2.0 ** torch.randint(-20, 19, (memories,), generator=generator)
    numbers = torch.cat([torch.arange(count // 2), torch.arange(1000, 90_000, 180_000 // count)])
    for number in numbers.tolist():
        n = int(torch.randint(1, 7, (), generator=generator))
        m = sizes * torch.randint(-3, 5, (n + 1, memories), generator=generator)
        made.append(Reading(number, [1] * n, m))
    return made


def batched(
    sentences: list[Reading], bos: int, padding: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, FakeBatch]:
    """The sentences side by side; padded coefficients are huge, so touching one shows."""
    width = max(len(s.tokens) for s in sentences) + bos + padding
    m = torch.full((len(sentences), width, sentences[0].m.shape[1]), 999.0, dtype=dtype)
    tokens = torch.full((len(sentences), width), 7)
    for row, sentence in enumerate(sentences):
        n = len(sentence.tokens)
        m[row, : n + bos] = sentence.m[1 - bos :].to(dtype)
        tokens[row, bos : n + bos] = torch.tensor(sentence.tokens)
    lengths = torch.tensor([len(s.tokens) for s in sentences])
    numbers = torch.tensor([s.number for s in sentences])
    if sentences[0].content is None:
        return m, FakeBatch(tokens, lengths, numbers, bos)
    content = torch.zeros(len(sentences), width - bos, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        content[row, : len(sentence.tokens)] = torch.tensor(sentence.content)
    return m, FakeBatch(tokens, lengths, numbers, bos, content)


def with_content(sentences: list[Reading], generator: torch.Generator) -> list[Reading]:
    """The same with some tokens that are not content; in a few sentences none is."""
    marks = [torch.rand(len(s.tokens), generator=generator) < 0.6 for s in sentences]
    return [
        replace(sentence, content=mark.tolist())
        for sentence, mark in zip(sentences, marks, strict=True)
    ]


Entry = tuple[float, int, object]  # coefficient, place, group


def brute_force(sentences: list[Reading], settings: ScanSettings, bos: int) -> LayerState:
    memories = sentences[0].m.shape[1]
    cells = [(c, 1.0) for c in range(memories)]
    if settings.signed:
        cells += [(c, -1.0) for c in range(memories)]
    entries = [_entries(sentences, settings, bos, *cell) for cell in cells]
    firing = [[e for sentence in cell for e in sentence if e[0] > 0] for cell in entries]
    competing = firing if settings.per_sentence == "all" else [_best(cell) for cell in entries]
    state = LayerState.empty(memories, settings)
    for cell, found in enumerate(competing):
        _fill_triggers(state.triggers, cell, found, settings)
        _fill_sample(state.sample, cell, found, settings)
    tallies = Tallies(
        torch.tensor([len(found) for found in firing]),
        torch.tensor([round(sum(e[0] for e in found) / UNIT) for found in firing]),
        torch.tensor([max((e[0] for e in found), default=0.0) for found in firing]),
        sum(len(sentence) for sentence in entries[0]),
        torch.tensor([_histogram(found) for found in firing]),
    )
    return LayerState(state.triggers, tallies, state.sample)


def _histogram(found: list[Entry]) -> list[int]:
    """How many coefficients are in each bin, those of the census for the sentences left out too."""
    counts = [0] * BINS
    for coefficient, place, _ in found:
        counts[_bin(coefficient)] += _census_factor(place // 65_536)
    return counts


@cache
def _bin(coefficient: float) -> int:
    inner_edges = [2.0 ** (LOWEST + number) for number in range(1, BINS)]
    return sum(coefficient > edge for edge in inner_edges)


@cache
def _census_factor(sentence: int) -> int:
    return int(census_factors(torch.tensor(sentence)))


@cache
def _priority(drawn: int, seed: int) -> int:
    return int(priorities(torch.tensor(drawn), seed))


def _entries(
    sentences: list[Reading], settings: ScanSettings, bos: int, memory: int, sign: float
) -> list[list[Entry]]:
    return [list(_admissible(s, settings, bos, memory, sign)) for s in sentences]


def _admissible(
    s: Reading, settings: ScanSettings, bos: int, memory: int, sign: float
) -> Iterator[Entry]:
    n = len(s.tokens)
    for p in range(0 if bos else 1, n + 1):
        own = s.content is None or (p > 0 and s.content[p - 1])
        if own and p >= settings.min_prefix and (p < n or settings.include_final):
            group = tuple(s.tokens if settings.dedupe == "sentence" else s.tokens[:p])
            yield sign * float(s.m[p, memory]), s.number * 65_536 + p, group


def _best(cell: list[list[Entry]]) -> list[Entry]:
    best = (min(s, key=lambda e: (-e[0], e[1])) for s in cell if s)
    return [e for e in best if e[0] > 0]


def _fill_triggers(into: Triggers, cell: int, found: list[Entry], settings: ScanSettings) -> None:
    ordered = sorted(found, key=lambda e: (-e[0], e[1]))
    if settings.dedupe != "none":
        met: dict[object, Entry] = {}
        for entry in ordered:
            met.setdefault(entry[2], entry)
        ordered = list(met.values())
    for rank, (coefficient, place, _) in enumerate(ordered[: settings.top]):
        into.coefficients[cell, rank], into.places[cell, rank] = coefficient, place


def _fill_sample(into: Sample, cell: int, found: list[Entry], settings: ScanSettings) -> None:
    def priority(place: int) -> int:
        drawn = place if settings.per_sentence == "all" else place // 65_536
        return _priority(drawn, settings.seed)

    ordered = sorted((priority(place), place, coefficient) for coefficient, place, _ in found)
    for rank, (drawn, place, coefficient) in enumerate(ordered[: settings.sample]):
        into.coefficients[cell, rank], into.places[cell, rank] = coefficient, place
        into.priorities[cell, rank] = drawn


def assert_same(found: LayerState, expected: LayerState) -> None:
    assert torch.equal(found.triggers.coefficients, expected.triggers.coefficients)
    assert torch.equal(found.triggers.places, expected.triggers.places)
    assert torch.equal(found.sample.places, expected.sample.places)
    assert torch.equal(found.sample.coefficients, expected.sample.coefficients)
    assert torch.equal(found.sample.priorities, expected.sample.priorities)
    assert torch.equal(found.tallies.fires, expected.tallies.fires)
    assert torch.equal(found.tallies.totals, expected.tallies.totals)
    assert torch.equal(found.tallies.largest, expected.tallies.largest)
    assert found.tallies.histogram is not None
    assert expected.tallies.histogram is not None
    assert torch.equal(found.tallies.histogram, expected.tallies.histogram)
    assert found.tallies.prefixes == expected.tallies.prefixes
    unfilled = found.triggers.places == EMPTY
    assert torch.equal(unfilled, found.triggers.coefficients == 0)
    assert torch.equal(found.sample.places == EMPTY, found.sample.priorities == NO_PRIORITY)
