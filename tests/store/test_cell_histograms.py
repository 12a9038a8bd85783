"""Histograms of cells and the threshold of firing, against counts of every coefficient."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.execution.run import run_scan
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.scan.histograms import (
    COLUMNS,
    bin_numbers,
    cell_histogram,
    fill_up,
    firing,
    first_firing_bin,
    threshold,
    windows,
)
from ffmem.scan.settings import BINS, LOWEST, ScanSettings
from ffmem.scan.tallies import Tallies
from ffmem.scan.triggers import Triggers
from ffmem.store.memory_page import memory_page
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import Condition
from ffmem.store.search.lookup import MemoryIndex
from tests.execution.small_scans import plan_for, sentences


def scan_all(model: LanguageModel, out: Path) -> ScanStore:
    """A scan whose triggers are all the places where a cell's coefficient is above zero."""
    corpus = out / "corpus.txt"
    corpus.write_text("\n".join(sentences(60)) + "\n")
    settings = ScanSettings(top=2000, sample=2, per_sentence="all", signed=model.gated)
    return run_scan(model, plan_for(model, corpus, settings=settings), out / "scan")


@pytest.fixture(scope="module", params=["opt", "gpt2", "llama"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return scan_all(load(f"tiny:{request.param}"), tmp_path_factory.mktemp(request.param))


def test_a_histogram_counts_every_coefficient_above_zero(whole: ScanStore) -> None:
    rows = range(0, whole.cells.count, 7)
    for cell in whole.cells.addresses(rows):
        found, every = whole.histogram(cell), whole.triggers(cell).coefficients
        assert found is not None
        assert found.exact
        assert found.total == len(every) == int(whole.array("fires")[whole.cells.row(cell)])
        if not len(every):
            assert found.edges == found.counts == ()
            continue
        assert found.edges[0] == 0
        assert found.edges[-1] == every.max()
        for (low, high), count in zip(pairwise(found.edges), found.counts, strict=True):
            assert low < high
            assert count == int(((every > low) & (every <= high)).sum())
        assert found.counts[-1] > 0
        assert len(found.counts) <= COLUMNS


def test_a_layer_fires_above_a_tenth_or_so_of_its_large_coefficients(whole: ScanStore) -> None:
    for layer, memories in whole.memories.items():
        rows, bar = whole.cells.rows_of(layer), whole.threshold(layer)
        every = np.asarray(whole.array("trigger_coefficients")[rows])
        if not bar:
            assert not whole.has("firing")  # ReLU: all above zero fires
            continue
        pairs = memories * whole.manifest.counts["prefixes"]
        smallest_large = np.sort(every.ravel())[-int(np.ceil(pairs / 1000))]
        assert bar < smallest_large / 8 <= 2 * bar
        assert np.array_equal(whole.array("firing")[rows], (every > bar).sum(1))


def test_one_count_is_shown_everywhere(whole: ScanStore) -> None:
    index, bars = MemoryIndex.at_once(whole), {n: whole.threshold(n) for n in whole.memories}
    column, positive = index.statistic("fires"), index.statistic("positive")
    assert np.array_equal(column, whole.fire_counts)
    assert np.array_equal(positive, whole.array("fires"))
    condition = Condition.parse("fires<40")
    assert np.array_equal(index.where([condition]), column < 40)
    for cell in whole.cells.addresses(range(3, whole.cells.count, 11)):
        page, every = memory_page(index, cell), whole.triggers(cell).coefficients
        assert page.counts.fires == int((every > bars[cell.layer]).sum())
        assert f"fires on {page.counts.fires:,} of" in page.frequency
        if bars[cell.layer]:
            assert page.counts.positive == len(every)
            assert f"it fires above {page.counts.threshold:.3g}, and its" in page.frequency
        else:
            assert page.counts.positive is page.counts.threshold is None
            assert "it fires above" not in page.frequency


def test_only_an_activation_with_true_zeros_has_no_threshold(whole: ScanStore) -> None:
    model = whole.manifest.key.model["type"]
    assert (whole.threshold(1) == 0) == (model == "opt")


def test_a_gated_memory_without_a_sign_is_two_histograms(
    gated: LanguageModel, tmp_path: Path
) -> None:
    store = scan_all(gated, tmp_path)
    with pytest.raises(AddressError, match=r"L1.3 is two cells; write L1.3\+ or L1.3-"):
        store.histogram(Address.parse("L1.3"))


def test_bins_hold_their_upper_edges() -> None:
    values = np.float32([2.0**-30, 2.0**-16, 2.0**-15, 0.5, 0.75, 1.0, 1.5, 2.0**15, 2.0**16, 1e30])
    inner = [2.0 ** (LOWEST + number) for number in range(1, BINS)]
    assert bin_numbers(values).tolist() == [sum(v > edge for edge in inner) for v in values]


@given(st.integers(0, 10_000))
def test_a_window_keeps_the_bins_below_the_largest(seed: int) -> None:
    draw = np.random.default_rng(seed)
    every = np.float32(2.0 ** draw.uniform(-25, 20, size=draw.integers(1, 60)))
    every = np.sort(every)[::-1]
    counts = np.bincount(bin_numbers(every), minlength=BINS)[None]
    kept = windows(counts, every[:1])
    assert kept.shape == (1, COLUMNS)
    assert kept.dtype == np.uint32
    found = cell_histogram(kept[0].astype(np.int64), len(every), every[:3], all_sentences=True)
    for (low, high), count in zip(pairwise(found.edges), found.counts, strict=True):
        assert count == int(((every > low) & (every <= high)).sum())


def test_counts_too_large_for_four_bytes_take_eight() -> None:
    counts = np.zeros((1, BINS), np.int64)
    counts[0, 16] = 2**33
    kept = windows(counts, np.float32([1.5]))
    assert kept.dtype == np.uint64
    assert int(kept[0, -1]) == 2**33


@given(
    window=st.lists(st.integers(0, 500), min_size=COLUMNS, max_size=COLUMNS),
    least=st.lists(st.integers(0, 9), min_size=COLUMNS, max_size=COLUMNS),
    more=st.integers(0, 100_000),
)
def test_estimates_add_up_and_agree_with_the_triggers(
    window: list[int], least: list[int], more: int
) -> None:
    fires = sum(least) + more
    if not sum(least):
        return
    found = fill_up(np.array(window), fires, np.array(least))
    assert int(found.sum()) == fires
    if sum(window) != fires:
        assert (found >= least).all()


def test_estimates_follow_the_census() -> None:
    window, none = np.array([600, 300, 100]), np.zeros(3, np.int64)
    assert fill_up(window, 64_000, none).tolist() == [38_400, 19_200, 6_400]


def test_a_cell_fires_at_least_as_often_as_its_triggers_say() -> None:
    histogram = torch.zeros(2, BINS, dtype=torch.int64)
    histogram[0, 14], histogram[0, 20] = 300, 100
    zeros = torch.zeros(2, dtype=torch.int64)
    fires = torch.tensor([800, 5])
    tallies = Tallies(fires, zeros, zeros.float(), 1000, histogram)
    strongest = torch.tensor([[20.0, 18.0, 17.0], [3.0, 2.0, 0.25]])
    triggers = Triggers(strongest, torch.arange(6).view(2, 3))
    assert first_firing_bin(tallies, 2, "silu") == 17
    assert threshold(17) == 2.0
    assert firing(tallies, triggers, 17).tolist() == [200, 1]
    assert firing(tallies, triggers, 0).tolist() == [800, 5]
    assert first_firing_bin(tallies, 2, "relu") == 0
