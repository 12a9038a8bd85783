from __future__ import annotations

import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.causal.measure import (
    last_coefficients,
    measure,
    other_memories,
    quiet_places,
    random_live_cells,
    trigger_places,
)
from ffmem.analyses.causal.record import Causal
from ffmem.analyses.inputs.next_tokens import next_log_probabilities
from ffmem.analyses.inputs.prefix_sample import draw_sample
from ffmem.memories.edits import Edit, edited
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import lines, sentences_of
from tests.memories.test_recording import hooks_in

Scanned = tuple[LanguageModel, ScanStore]
Planted = tuple[LanguageModel, ScanStore, dict[int, tuple[int, int]]]


def test_rows_are_edited_one_by_one_as_each_alone_would_be(scanned_toy: Scanned) -> None:
    model, _ = scanned_toy
    prefixes = [model.encode(text)[0, 1:] for text in ("river", "a stone", "light on", "x")]
    sign = "+" if model.gated else ""
    edits = [Edit(Address(2, 5 * row, sign), "set", 3.0 * row) for row in range(4)]
    for everywhere in (False, True):
        found = next_log_probabilities(model, prefixes, edits, everywhere)
        for row, prefix in enumerate(prefixes):
            tokens = torch.cat([torch.tensor([model.bos]), prefix])[None]
            at = None if everywhere else (len(prefix),)
            edit = Edit(edits[row].address, "set", edits[row].amount, at)
            with edited(model, [edit]):
                scores = model.model(tokens).logits[0, -1, : model.vocab_size]
            expected = scores.log_softmax(0)
            torch.testing.assert_close(found[row], expected, rtol=1e-4, atol=1e-4)


def test_nothing_is_left_behind(relu: LanguageModel) -> None:
    before = hooks_in(relu.model)
    prefixes = [relu.encode("river")[0, 1:]]
    plain = next_log_probabilities(relu, prefixes)
    changed = next_log_probabilities(relu, prefixes, [Edit(Address(1, 3), "set", 9.0)])
    assert not torch.allclose(plain, changed)
    assert torch.equal(plain, next_log_probabilities(relu, prefixes))
    assert hooks_in(relu.model) == before


def test_silencing_a_planted_memory_lowers_its_token(planted: Planted) -> None:
    model, store, memories = planted
    for index, (_, promised) in memories.items():
        places = trigger_places(store, [Address(3, index)], 3)
        assert (places.following == promised).all()
        edits = [Edit(Address(3, index), "set", 0.0)] * len(places.prefixes)
        before = next_log_probabilities(model, places.prefixes)[:, promised]
        after = next_log_probabilities(model, places.prefixes, edits)[:, promised]
        assert (after < before - 0.1).all()


def test_a_silent_memory_changes_nothing_when_silenced(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.analyses.causal.measure.TOKENS", 1)  # all that is planted
    (layer,) = [row for row in planted_causal(planted).layers if row.layer == 3]
    assert layer.silenced_elsewhere.kl.estimate == pytest.approx(0, abs=1e-6)
    assert layer.silenced_elsewhere.value_log_probability.estimate == pytest.approx(0, abs=1e-5)
    assert layer.silenced.value_log_probability.high < 0
    assert layer.silenced.next_probability.high < 0
    assert layer.forced.value_log_probability.low > 0
    assert layer.silenced.kl.low > 0


def planted_causal(planted: Planted) -> Causal:
    model, store, _ = planted
    sample = draw_sample([sentences_of(model, lines(30, 4))], 20)
    return measure(model, store, sample, torch.Generator().manual_seed(0), memories=5)


def test_effects_come_for_every_layer_and_kind(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    sample = draw_sample([sentences_of(model, lines(30, 4))], 20)
    one, other = (
        measure(model, store, sample, torch.Generator().manual_seed(3), memories=3)
        for _ in range(2)
    )
    assert repr(one) == repr(other)  # NaN, where a cell has no control, equals itself in text
    assert [row.layer for row in one.layers] == list(store.memories)
    for row in one.layers:
        assert row.memories == 3
        assert row.silenced.kl.n == 3
        assert row.silenced.kl.low >= -1e-6
        assert row.silenced.kl.low <= row.silenced.kl.estimate <= row.silenced.kl.high
        own, another = (e.value_log_probability for e in (row.silenced, row.other_silenced))
        assert row.lost_more is not None
        assert row.lost_more.n == own.n
        assert row.lost_more.estimate == pytest.approx(another.estimate - own.estimate, abs=1e-5)


def test_controls_do_not_fire_the_cell(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    draw = torch.Generator().manual_seed(0)
    sample = draw_sample([sentences_of(model, lines(40, 4))], 30)
    cells = random_live_cells(store, 2, 4, draw)
    like = trigger_places(store, cells, 3)
    quiet = quiet_places(model, cells, like, sample, draw)
    m = last_coefficients(model, 2, quiet.prefixes) if quiet.prefixes else torch.zeros(0, 1)
    for row, owner in enumerate(quiet.owners.tolist()):
        sign = -1 if cells[owner].sign == "-" else 1
        assert sign * float(m[row, cells[owner].index]) <= 1e-5


def test_the_other_memory_is_the_one_of_most_nearly_equal_strength(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    cells = random_live_cells(store, 2, 4, torch.Generator().manual_seed(1))
    places = trigger_places(store, cells, 3)
    edits = other_memories(model, cells, places)
    lengths = value_vectors(model.layer(2)).detach().norm(dim=1)
    strength = last_coefficients(model, 2, places.prefixes).abs() * lengths
    for row, (edit, owner) in enumerate(zip(edits, places.owners.tolist(), strict=True)):
        own = float(strength[row, cells[owner].index])
        others = [
            abs(float(one) - own) for i, one in enumerate(strength[row]) if i != cells[owner].index
        ]
        assert edit.address.index != cells[owner].index
        gap = abs(float(strength[row, edit.address.index]) - own)
        assert gap == pytest.approx(min(others), abs=1e-6)
