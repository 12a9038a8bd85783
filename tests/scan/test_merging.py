"""Laws of merging: triggers, sample and tallies, to the bit and with many ties."""

from __future__ import annotations

from collections import Counter
from functools import reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ffmem.corpus.shards import EMPTY, POSITIONS
from ffmem.scan.candidates import Candidates, tables
from ffmem.scan.hashing import NO_PRIORITY, mix_bits, prefix_hashes, priorities
from ffmem.scan.settings import ScanSettings
from ffmem.scan.tallies import Tallies
from ffmem.scan.triggers import Sample, Triggers

CELLS, K, POPULATION = 4, 6, 40


def population(seed: int, grouped: bool) -> Candidates:
    """Every cell with every place once; few distinct coefficients and groups."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.arange(CELLS).repeat_interleave(POPULATION)
    places = torch.arange(POPULATION).repeat(CELLS) * POSITIONS + 3
    coefficients = torch.randint(0, 5, cells.shape, generator=generator) / 8
    groups = torch.randint(-4, 5, cells.shape, generator=generator) if grouped else None
    fires = coefficients > 0
    return Candidates(cells.int(), coefficients, places, groups).at(fires)


def fully_sorted(found: Candidates, cell: int) -> list[tuple[float, int]]:
    mine = found.at(found.cells == cell)
    groups = mine.places if mine.groups is None else mine.groups
    entries = sorted(
        zip((-mine.coefficients).tolist(), mine.places.tolist(), groups.tolist(), strict=True)
    )
    first: dict[int, tuple[float, int]] = {}
    for coefficient, place, group in entries:
        first.setdefault(group, (-coefficient, place))
    return list(first.values())[:K]


def pieces(found: Candidates, seed: int) -> list[Candidates]:
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(found), generator=generator)
    return [found.at(part) for part in shuffled.tensor_split(5)]


def drawn_triggers(found: Candidates, width: int = 128) -> Triggers:
    empty = Triggers.empty(CELLS, K, found.groups is not None)
    return empty.take_in(tables(found, CELLS, width))


def drawn_sample(found: Candidates, chosen: ScanSettings, width: int = 128) -> Sample:
    return Sample.empty(CELLS, chosen.sample).take_in(tables(found, CELLS, width), chosen)


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.integers(0, 10_000), grouped=st.booleans())
def test_merging_pieces_in_any_order_gives_what_a_full_sort_gives(
    seed: int, order: int, grouped: bool
) -> None:
    found = population(seed, grouped)
    parts = [drawn_triggers(piece) for piece in pieces(found, order)]
    merged = reduce(Triggers.merge, parts, Triggers.empty(CELLS, K, grouped))
    for cell in range(CELLS):
        expected = fully_sorted(found, cell)
        kept = zip(merged.coefficients[cell].tolist(), merged.places[cell].tolist(), strict=True)
        assert list(kept) == expected + [(0.0, EMPTY)] * (K - len(expected))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.integers(0, 10_000), grouped=st.booleans())
def test_triggers_merge_associatively_and_commutatively(
    seed: int, order: int, grouped: bool
) -> None:
    a, b, c, *_ = (drawn_triggers(p) for p in pieces(population(seed, grouped), order))
    assert same(a.merge(b).fields, b.merge(a).fields)
    assert same(a.merge(b).merge(c).fields, a.merge(b.merge(c)).fields)
    assert same(a.merge(Triggers.empty(CELLS, K, grouped)).fields, a.fields)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.integers(0, 10_000))
def test_samples_merge_associatively_and_commutatively(seed: int, order: int) -> None:
    chosen = ScanSettings(sample=K, per_sentence="all", seed=seed)
    found = population(seed, False)
    a, b, c, d, e = (drawn_sample(p, chosen) for p in pieces(found, order))
    assert same(a.merge(b).fields, b.merge(a).fields)
    assert same(a.merge(b).merge(c).fields, a.merge(b.merge(c)).fields)
    whole = drawn_sample(found, chosen)
    assert same(e.merge(a).merge(d.merge(c.merge(b))).fields, whole.fields)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2**40)] * 4), min_size=3, max_size=3))
def test_tallies_merge_associatively_and_commutatively(numbers: list[tuple[int, ...]]) -> None:
    a, b, c = (
        Tallies(*map(torch.tensor, ([x], [y], [float(x % 7)])), z, torch.tensor([[v, x]]))
        for x, y, z, v in numbers
    )
    left, right = a.merge(b).merge(c), c.merge(b.merge(a))
    assert torch.equal(left.fires, right.fires)
    assert torch.equal(left.totals, right.totals)
    assert torch.equal(left.largest, right.largest)
    assert left.prefixes == right.prefixes
    assert int(left.totals) == sum(y for _, y, *_ in numbers)
    assert torch.equal(left.histogram, right.histogram)
    assert left.histogram.tolist() == [[sum(n[3] for n in numbers), sum(n[0] for n in numbers)]]


@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize("grouped", [False, True])
def test_cells_with_more_candidates_than_a_table_is_wide_lose_none(
    width: int, grouped: bool
) -> None:
    found, chosen = population(3, grouped), ScanSettings(sample=K)
    assert same(drawn_triggers(found, width).fields, drawn_triggers(found).fields)
    assert same(drawn_sample(found, chosen, width).fields, drawn_sample(found, chosen).fields)


def test_sizes_that_differ_do_not_merge() -> None:
    with pytest.raises(ValueError, match="do not merge"):
        Triggers.empty(2, 3).merge(Triggers.empty(2, 4))
    with pytest.raises(ValueError, match="do not merge"):
        Triggers.empty(2, 3).merge(Triggers.empty(2, 3, grouped=True))
    with pytest.raises(ValueError, match="do not merge"):
        Sample.empty(2, 3).merge(Sample.empty(2, 4))


@pytest.mark.parametrize("per_sentence", ["max", "all"])
def test_every_firing_trigger_is_drawn_equally_often(per_sentence: str) -> None:
    fires, size, seeds = 12, 3, 2000
    places = torch.arange(fires) * POSITIONS + torch.arange(fires) % 4 + 1
    found = Candidates(torch.zeros(fires, dtype=torch.int32), torch.ones(fires), places)
    drawn: Counter[int] = Counter()
    for seed in range(seeds):
        chosen = ScanSettings(sample=size, seed=seed, per_sentence=per_sentence)  # type: ignore[arg-type]
        drawn.update(Sample.empty(1, size).take_in(tables(found, 1), chosen).places[0].tolist())
    expected = seeds * size / fires
    assert set(drawn) == set(places.tolist())
    chi_square = sum((count - expected) ** 2 / expected for count in drawn.values())
    assert chi_square < 31.3  # 11 degrees of freedom, p = 0.001


def test_priorities_depend_on_number_and_seed_and_fill_their_range() -> None:
    numbers = torch.arange(10_000)
    drawn = priorities(numbers, 1)
    assert drawn.dtype == torch.int32
    assert 0 <= int(drawn.min()) < 2**20
    assert NO_PRIORITY - 2**20 < int(drawn.max()) < NO_PRIORITY
    assert torch.equal(drawn.flip(0), priorities(numbers.flip(0), 1))
    assert (drawn == priorities(numbers, 2)).float().mean() < 0.01


def test_mixing_is_one_to_one() -> None:
    numbers = torch.arange(-5000, 5000)
    assert len(mix_bits(numbers).unique()) == len(numbers)


def test_prefixes_have_equal_hashes_exactly_when_their_tokens_are_equal() -> None:
    """All of them, with small numbers for tokens: the columns have small numbers too."""
    tokens, width = 8, 5
    hashes = prefix_hashes(torch.cartesian_prod(*[torch.arange(tokens)] * width))
    for column in range(width):
        blocks = hashes[:, column].view(tokens ** (column + 1), -1)  # equal prefixes lie together
        assert (blocks == blocks[:, :1]).all()
    assert len(hashes.unique()) == sum(tokens ** (column + 1) for column in range(width))
