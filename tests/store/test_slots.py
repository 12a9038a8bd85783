"""Slots against plain loops over the arrays of a store."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffmem.store.bit_rows import pack
from ffmem.store.folder import StudyFolder
from ffmem.store.scan_store import ScanStore
from ffmem.store.scan_writer import NO_SENTENCE
from ffmem.store.slots import SlotKind, Slots, TriggerList
from tests.analyses.conftest import gated_store, relu_store  # noqa: F401


def slow(
    store: ScanStore, rows: list[int], kind: SlotKind, top: int | None
) -> list[tuple[Any, ...]]:
    """(cell, sentence row, position, coefficient) of every filled slot."""
    names = ("sentences", "positions", "coefficients")
    arrays = [store.array(f"{kind}_{name}") for name in names]
    numbers = store.sentences.numbers.tolist()
    return [
        (place, numbers.index(sentence), position, coefficient)
        for place, row in enumerate(rows)
        for sentence, position, coefficient in zip(
            *(array[row][:top].tolist() for array in arrays), strict=True
        )
        if sentence != NO_SENTENCE
    ]


def columns(slots: Slots) -> list[tuple[Any, ...]]:
    parts = (slots.cell, slots.sentence, slots.position, slots.coefficient)
    return list(zip(*(part.tolist() for part in parts), strict=True))


@pytest.fixture(params=["relu_store", "gated_store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ScanStore:
    """A store in which some slots, one cell and one cell's first slot are empty."""
    original: ScanStore = request.getfixturevalue(request.param)
    shutil.copytree(original.folder.root, tmp_path / "scan")
    folder = StudyFolder(tmp_path / "scan")
    for kind in ("trigger", "sample"):
        sentences = np.array(original.array(f"{kind}_sentences"))
        sentences[3] = NO_SENTENCE
        sentences[5, 2:] = NO_SENTENCE
        sentences[7, 0] = NO_SENTENCE
        np.save(folder.array(f"{kind}_sentences"), pack(sentences, NO_SENTENCE))
    replace(original.manifest, files={}).write(folder)
    return ScanStore.open(folder.root)


@pytest.mark.parametrize("kind", ["trigger", "sample"])
@pytest.mark.parametrize("top", [None, 1, 3])
def test_slots_are_what_a_loop_finds(store: ScanStore, kind: SlotKind, top: int | None) -> None:
    chosen = [7, 3, 5, 0, 5]
    assert columns(store.slots(chosen, kind, top)) == slow(store, chosen, kind, top)
    some = store.slots(slice(2, 40), kind, top)
    assert columns(some) == slow(store, list(range(2, 40)), kind, top)
    assert len(some) == len(some.cell) == int(some.mask.sum())
    assert not some.mask[1].any()  # the cell in row 3
    assert columns(store.slots([3], kind, top)) == []


def test_distinct_sentences_are_those_of_all_slots(store: ScanStore) -> None:
    slots = store.slots(slice(None), "sample")
    assert slots.distinct_sentences().tolist() == sorted(set(slots.sentence.tolist()))


def test_triggers_are_a_sequence_of_the_filled_slots(store: ScanStore) -> None:
    found, slots = TriggerList(store.slots([5])), store.slots([5])
    assert len(found) == 2
    assert [found[0], found[1]] == list(found) == found[:]
    assert found[-1] == found[1]
    assert found[:1] == [found[0]]
    assert list(found) == list(TriggerList(store.slots([5])))
    assert list(found) != list(TriggerList(store.slots([6])))
    with pytest.raises(IndexError):
        found[2]
    for one, row in zip(found, slots.sentence.tolist(), strict=True):
        assert one.before + one.last + one.next + one.rest == store.sentences.sentence(row)
        assert one.sentence == store.sentences.numbers[row]
