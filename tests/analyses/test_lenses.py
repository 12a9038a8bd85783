from __future__ import annotations

import torch

from ffmem.analyses.inputs.prefix_sample import draw_sample
from ffmem.analyses.inputs.trigger_tokens import trigger_tokens
from ffmem.analyses.lenses import MEASURED, lenses, lenses_of, measured_effects
from ffmem.memories.projection import Lens, logits
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import lines, sentences_of
from tests.near_ties import ranks_of

Scanned = tuple[LanguageModel, ScanStore]
Planted = tuple[LanguageModel, ScanStore, dict[int, tuple[int, int]]]


def test_lenses_are_those_that_make_a_difference(scanned_toy: Scanned) -> None:
    model, _ = scanned_toy
    expected = {
        "opt": ["raw", "norm-folded"],
        "gpt2": ["raw", "norm-folded"],
        "llama": ["raw", "norm-folded", "input embedding"],
        "gpt_neox": ["raw", "norm-folded", "input embedding"],
        "post-norm": ["raw"],
    }
    assert list(lenses_of(model)) == expected[model.name]


def test_static_lenses_are_those_of_the_slow_way(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    sample = draw_sample([sentences_of(model, lines(20, 5))], 10)
    found = lenses(model, store, sample, torch.Generator().manual_seed(0), (4, 2))
    ways = {
        "raw": Lens(final_norm="none"),
        "norm-folded": Lens(),
        "input embedding": Lens(embed="input"),
    }
    for row in found.rows:
        if row.lens == MEASURED:
            assert row.agreement.n == 4
            continue
        following = trigger_tokens(store, row.layer).next[:, 0].tolist()
        values = value_vectors(model.layer(row.layer))
        least = most = count = 0
        for cell, wanted in enumerate(following):
            if wanted < 0:
                continue
            address = store.cells.in_layer(row.layer, [cell])[0]
            value = values[address.index] * (-1 if address.sign == "-" else 1)
            first, last = ranks_of(wanted, logits(model, value, "piece", ways[row.lens]))
            least, most = least + (last < 10), most + (first < 10)
            count += 1
        assert row.top_10.n == count
        assert least <= round(row.top_10.estimate * count) <= most


def test_forcing_a_planted_memory_shows_its_token(planted: Planted) -> None:
    model, store, memories = planted
    sample = draw_sample([sentences_of(model, lines(20, 5))], 10)
    cells = torch.tensor(list(memories))
    how = (torch.Generator().manual_seed(0), 3)
    changes = torch.cat(list(measured_effects(model, store, (3, cells), sample, how)))
    found = changes.argmax(dim=1).tolist()
    assert found == [promised for _, promised in memories.values()]
