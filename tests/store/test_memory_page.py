"""One record of a cell: what the store knows, and how it is shown as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ffmem.address import Address
from ffmem.analyses.study import open_study
from ffmem.figures.memory import memory_chart
from ffmem.records import restore, to_plain
from ffmem.store.memory_page import (
    BEFORE,
    MemoryPage,
    evidence,
    fold_equal,
    memory_page,
    page_sentences,
    spread_out,
)
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.slots import Trigger
from ffmem.text import Piece, Snippet
from tests.analyses.conftest import gated_store, relu_store  # noqa: F401


@pytest.fixture(params=["relu_store", "gated_store"])
def store(request: pytest.FixtureRequest) -> ScanStore:
    found: ScanStore = request.getfixturevalue(request.param)
    return found


def test_a_page_is_what_the_store_says(store: ScanStore) -> None:
    index = MemoryIndex.at_once(store)
    for cell in store.cells.addresses([0, 70, store.cells.count - 1]):
        page = memory_page(index, cell)
        assert page.address == cell
        assert page.opposite == store.cells.opposite(cell)
        assert page.counts == store.counts(cell)
        assert list(page.promoted) == index.value_tokens(cell)
        assert list(page.suppressed) == index.value_tokens(cell, "suppressed")
        assert page.triggers == tuple(store.triggers(cell))
        assert page.sample == tuple(store.triggers(cell, "sample"))
        assert memory_page(index, cell, 3) == replace(page, triggers=page.triggers[:3])
        assert page.stored == len(page.triggers)
        assert memory_chart(page, 4).to_dict()["title"]["text"] == f"Memory {cell}"


def test_a_memory_named_without_a_sign_is_its_first_cell(store: ScanStore) -> None:
    study = open_study(store.folder.root)
    cells = store.cells.resolve(Address(2, 10))
    assert study.memory("L2.10") == study.memory(cells[0])
    for cell in cells:
        one = study.memory(cell)
        assert one.address == cell
        assert one.opposite in (None, *cells)
        assert restore(MemoryPage, to_plain(one)) == one
        assert f"fires on {one.counts.fires:,} of {one.counts.prefixes:,}" in repr(one)
        assert Snippet.of(one.triggers[0], BEFORE).following in repr(one)


def test_text_that_is_markup_is_escaped(tmp_path: Path) -> None:
    from ffmem.models.loading import load
    from tests.analyses.conftest import scanned_lines

    store = scanned_lines(load("tiny:opt"), tmp_path / "scan", ["a <b>stone</b> & light"] * 3)
    pages = [
        memory_page(MemoryIndex.at_once(store), cell)._repr_html_()
        for cell in store.cells.addresses(range(64))
    ]
    assert any("&lt;b&gt;" in page for page in pages)
    assert not any("<b>stone" in page for page in pages)


def test_equal_prefixes_are_folded() -> None:
    def trigger(text: str, number: int) -> Trigger:
        return Trigger(1.0, number, 3, text[:-1], text[-1], "n", "rest")

    triggers = [trigger(text, row) for row, text in enumerate(["aa", "aa", "ab", "aa", "ac"])]
    folds = fold_equal(triggers, 3)
    assert [(one.sentence, times) for one, times in folds] == [(0, 2), (2, 1), (3, 1)]


def test_bands_hold_the_whole_sample_and_examples_of_their_size(store: ScanStore) -> None:
    index = MemoryIndex.at_once(store)
    for row in (0, 70, store.cells.count - 1):
        page = memory_page(index, store.cells.address(row))
        largest = page.counts.largest
        assert sum(band.sampled for band in page.bands) == sum(
            one.coefficient > 0 for one in page.sample
        )
        for band in page.bands:
            assert len(band.examples) <= 3
            assert bool(band.examples) >= bool(band.sampled)  # what was drawn is shown
            for one in band.examples:
                assert band.low * largest * (1 - 1e-6) <= one.coefficient
                assert one.coefficient <= band.high * largest * (1 + 1e-6)
        numbers = page_sentences(store, page.address)
        shown = [*page.triggers[:25], *(one for band in page.bands for one in band.examples)]
        assert sorted(numbers) == sorted({one.sentence for one in shown})


def test_examples_of_a_band_are_spread_over_it() -> None:
    assert spread_out(range(10, 20), 3) == [10, 13, 16]
    assert spread_out(range(2), 3) == [0, 1]
    assert spread_out(range(5), 0) == []


def test_factors_of_the_uniform_level_are_those_of_a_softmax(store: ScanStore) -> None:
    """Of the tokens that are there, ratios of probabilities are exponents of logits."""
    page = memory_page(MemoryIndex.at_once(store), store.cells.address(5))
    first, other = page.promoted[0], page.suppressed[0]
    of_first, of_other = page.times_uniform(first), page.times_uniform(other)
    assert of_first * page.uniform == pytest.approx(page.probability)
    ratio = of_first / of_other
    assert ratio == pytest.approx(np.exp(first.logit - other.logit))
    assert page.uniform * page.vocabulary == pytest.approx(1)


def test_an_address_has_the_name_of_its_activation_elsewhere() -> None:
    assert Address.parse("L12.691").hook == "blocks.11.mlp.hook_post[..., 691]"
    assert Address.parse("L12.691-").hook == "blocks.11.mlp.hook_post[..., 691]"
    assert Address.parse("L12.E3.691").hook is None


def test_a_page_carries_the_histogram_of_the_scan(store: ScanStore) -> None:
    page = memory_page(MemoryIndex.at_once(store), store.cells.address(5))
    found = page.histogram
    assert found == store.histogram(page.address)
    assert found is not None
    assert found.edges[-1] == pytest.approx(page.counts.largest)
    positive = page.counts.positive
    assert found.total == (page.counts.fires if positive is None else positive)


def test_evidence_marks_words_wherever_they_are() -> None:
    long = "The river came first, and then " + "there was a great deal more to be said " * 4
    trigger = Trigger(1.5, 3, 9, long + "of the Riv", "er bank", " and", " more")
    found = evidence(trigger, 2, {"river", "bank"})
    assert (found.rank, found.coefficient) == (2, 1.5)
    marked = [one.text for one in found.pieces if one.mark == "word"]
    assert marked == ["river", "River", "bank"]
    assert found.pieces[-1] == Piece(" and", "next")
    assert len(str(found)) < 160
    assert "…" in str(found)


def test_evidence_without_words_is_the_end_of_the_trigger() -> None:
    found = evidence(Trigger(1.0, 0, 2, "a fox", " sat", "", ""), 1)
    assert found.pieces == (Piece("a fox"), Piece(" sat", "last"), Piece("end", "next"))
