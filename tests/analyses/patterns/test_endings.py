"""Do triggers end alike more often below? All keys are read, and the signs of a memory are one."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest
import torch

from ffmem.analyses.patterns.measure import commonest_ending, effects_of_endings, is_semantic_depth
from ffmem.analyses.patterns.prefixes import first_prefixes
from ffmem.analyses.study import Study


def test_the_commonest_ending_is_counted_among_triggers_alone() -> None:
    last = torch.tensor([[5, 5, 7, 5], [1, 2, 3, 4], [9, 9, 9, 9], [6, 6, 6, 6]])
    filled = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    found = commonest_ending(last, filled)
    assert found[:3].tolist() == [0.75, 0.25, 1.0]
    assert found[3].isnan()


def test_every_key_counts_once(gated_study: Study) -> None:
    """Slowly: key by key, from the text of its triggers."""
    store = gated_study.store
    parts: tuple[list[float], list[float]] = ([], [])
    layers = list(store.memories)
    for place, layer in enumerate(layers):
        upper = bool(is_semantic_depth(torch.tensor([place]), len(layers))[0])
        shares: dict[int, list[float]] = {}
        rows = store.cells.rows_of(layer)
        for cell in store.cells.addresses(range(rows.start, rows.stop)):
            shown = first_prefixes(store, cell)
            if shown:
                most = max(Counter(prefix.ids[-1] for prefix in shown).values())
                shares.setdefault(cell.index, []).append(most / len(shown))
        parts[upper].extend(map(fmean, shares.values()))
    found = effects_of_endings(store)
    lower, upper_mean = map(fmean, parts)
    assert found.same_ending_lower.estimate == pytest.approx(lower)
    assert found.same_ending_fades.estimate == pytest.approx(lower - upper_mean)
    assert found.same_ending_fades.n == sum(map(len, parts))
    assert found == gated_study.result("patterns").endings
