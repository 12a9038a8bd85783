"""Two scans of the same text that made their batches in different ways."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from ffmem.address import Address
from ffmem.memories.recording import Records, record
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore

NEAR_ZERO = 1e-5  # a score so near to zero fires or does not, as rounding has it


def same_answer(model: LanguageModel, corpus: Path, one: ScanStore, other: ScanStore) -> None:
    """The same answer but for rounding.

    Counts of text are equal, and so is every coefficient within a tolerance. Where the two name
    different triggers, the model itself, reading each prefix alone, must give both the
    coefficient that is stored: then they tie, and neither scan is wrong. A cell's fires may
    differ by prefixes whose score is zero but for rounding.
    """
    for name in ("sentences", "tokens", "prefixes"):
        assert one.manifest.counts[name] == other.manifest.counts[name]
    np.testing.assert_allclose(
        one.array("trigger_coefficients"), other.array("trigger_coefficients"), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(one.array("totals"), other.array("totals"), rtol=1e-4, atol=200)
    same_fires(model, corpus, one, other)
    same_triggers(model, one, other)


def same_fires(model: LanguageModel, corpus: Path, one: ScanStore, other: ScanStore) -> None:
    for cell in every_cell(one):
        row = one.cells.row(cell)
        difference = abs(int(one.array("fires")[row]) - int(other.array("fires")[row]))
        assert difference == 0 or difference <= prefixes_near_zero(model, corpus, cell), cell


def same_triggers(model: LanguageModel, one: ScanStore, other: ScanStore) -> None:
    @cache
    def readings(sentence: int, position: int) -> Records:
        store = one if sentence in one.sentences.numbers else other
        ids = store.sentences.token_ids(store.sentences.row(sentence))[:position].tolist()
        return record(model, torch.tensor([[model.bos, *ids]]), "m")

    for cell in every_cell(one):
        pair = [store.triggers(cell) for store in (one, other)]
        for triggers in pair:
            assert len({t.sentence for t in triggers}) == len(triggers), cell
        for left, right in zip(*pair, strict=False):  # one at zero's edge may be in one alone
            places = {(trigger.sentence, trigger.position) for trigger in (left, right)}
            for place in places if len(places) > 1 else ():
                m = readings(*place).layer(cell.layer).m[0, -1]
                own = float(m[cell.index]) * (-1 if cell.sign == "-" else 1)
                assert own == pytest.approx(left.coefficient, rel=1e-4, abs=1e-5), cell


def every_cell(store: ScanStore) -> list[Address]:
    return [
        cell
        for layer, memories in store.memories.items()
        for index in range(memories)
        for cell in store.cells.resolve(Address(layer, index))
    ]


def prefixes_near_zero(model: LanguageModel, corpus: Path, cell: Address) -> int:
    """How many prefixes of the corpus rounding alone can let fire."""
    count = 0
    for line in corpus.read_text(encoding="utf-8").splitlines():
        reading = record(model, line, "am").layer(cell.layer)
        scores = (reading.m if model.gated else reading.a)[..., cell.index].flatten()
        count += int((scores[1:-1].abs() < NEAR_ZERO).sum())
    return count
