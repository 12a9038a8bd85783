from __future__ import annotations

import pytest
import torch

from ffmem.analyses.inputs.prefix_sample import draw_sample
from ffmem.analyses.inputs.value_rankings import trigger_tokens
from ffmem.analyses.lenses.charts import learned_lens_chart
from ffmem.analyses.lenses.measure import (
    LEARNED,
    MEASURED,
    ScannedStates,
    fit_map,
    learn_lens,
    lens_prefixes,
    lens_states,
    lenses_of,
    mean_effects,
    measure,
)
from ffmem.analyses.lenses.similarity import alike, inner_products, similarity
from ffmem.memories.projection import Lens, logits
from ffmem.memories.recording import record
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
    found = measure(model, store, sample, torch.Generator().manual_seed(0), (4, 2))
    ways = {
        "raw": Lens(final_norm="none"),
        "norm-folded": Lens(),
        "input embedding": Lens(embed="input"),
    }
    for row in found.rows:
        if row.lens == MEASURED:
            assert row.agreement.n == 4
            continue
        if row.lens == LEARNED:
            continue
        following = trigger_tokens(store, row.layer).next[:, 0].tolist()
        values = value_vectors(model.layer(row.layer))
        least = most = count = 0
        for cell, wanted in enumerate(following):
            if wanted < 0:
                continue
            address = store.cells.in_layer(row.layer, [cell])[0]
            value = values[address.index] * (-1 if address.sign == "-" else 1)
            first, last = ranks_of(wanted, logits(model, value, "direction", ways[row.lens]))
            least, most = least + (last < 10), most + (first < 10)
            count += 1
        assert row.top_10.n == count
        assert least <= round(row.top_10.estimate * count) <= most


def test_forcing_a_planted_memory_shows_its_token(planted: Planted) -> None:
    model, store, memories = planted
    sample = draw_sample([sentences_of(model, lines(20, 5))], 10)
    cells = torch.tensor(list(memories))
    how = (torch.Generator().manual_seed(0), 3)
    changes = torch.cat(list(mean_effects(model, store, (3, cells), sample, how)))
    found = changes.argmax(dim=1).tolist()
    assert found == [promised for _, promised in memories.values()]


def planted_states(model: LanguageModel, turned: bool) -> ScannedStates:
    """Last states that a head can tell apart, and first ones: the same turned, or others."""
    draw = torch.Generator().manual_seed(0)
    ends = 3 * torch.randn(600, model.hidden_size, generator=draw)
    turn = torch.linalg.qr(torch.randn(model.hidden_size, model.hidden_size, generator=draw)).Q
    other = torch.randn(ends.shape, generator=draw)
    first = (ends + 1) @ turn if turned else other
    return ScannedStates({1: first, len(model.layers): ends}, 480)


def test_a_learned_lens_finds_a_hidden_turn_and_nothing_where_there_is_nothing(
    relu: LanguageModel,
) -> None:
    draw = torch.Generator().manual_seed(1)
    fit, learned = learn_lens(relu, 1, planted_states(relu, turned=True), draw)
    assert fit.fitted_on == 480
    assert fit.learned.n == fit.identity.n == fit.shuffled.n == 120
    assert fit.learned.low > 0.6
    assert fit.identity.high < fit.learned.low
    assert fit.shuffled.high < fit.learned.low
    fit, _ = learn_lens(relu, 1, planted_states(relu, turned=False), draw)
    assert fit.learned.low <= fit.shuffled.high
    some = planted_states(relu, turned=True).outputs[1][:3]
    assert torch.allclose(learned(some) - learned(some * 0), learned.move(some), atol=1e-4)


def test_a_map_of_equal_states_changes_nothing() -> None:
    states = torch.randn(50, 8, generator=torch.Generator().manual_seed(2))
    found = fit_map(states, states)
    torch.testing.assert_close(found(states), states, rtol=1e-5, atol=1e-5)


def test_few_sentences_give_many_places_and_each_test_is_of_a_sentence_of_its_own(
    relu_store: ScanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.analyses.lenses.measure.PLACES", 12)
    monkeypatch.setattr("ffmem.analyses.lenses.measure.SENTENCES", 5)
    store = relu_store
    training, testing = lens_prefixes(store, torch.Generator().manual_seed(0))
    assert (len(training), len(testing)) == (12, 1)  # three in each of four, one in another
    whole = [store.sentences.token_ids(row).tolist() for row in range(len(store.sentences))]

    def sentences_with(prefix: torch.Tensor) -> set[int]:
        ids = prefix.tolist()
        return {row for row, sentence in enumerate(whole) if sentence[: len(ids)] == ids}

    threes = [training[at : at + 3] for at in range(0, 12, 3)]
    assert all(set.intersection(*map(sentences_with, three)) for three in threes)
    assert all(len({len(prefix) for prefix in three}) == 3 for three in threes)
    longest = [max(three, key=len) for three in threes] + testing
    homes = [sentences_with(prefix) for prefix in longest]
    only = [next(iter(home)) for home in homes if len(home) == 1]
    assert len(only) > 1
    assert len(set(only)) == len(only)


def test_states_are_those_of_each_prefix_read_alone(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    states = lens_states(model, store, torch.Generator().manual_seed(0))
    training, testing = lens_prefixes(store, torch.Generator().manual_seed(0))
    assert states.training == len(training)
    assert {len(part) for part in states.outputs.values()} == {len(training + testing)}
    lead = [] if model.bos is None else [model.bos]
    for place in (0, 7, len(training), -1):
        tokens = torch.tensor([lead + (training + testing)[place].tolist()])
        for reading in record(model, tokens, "o"):
            mine = states.outputs[reading.layer.number][place]
            torch.testing.assert_close(mine, reading.o[0, -1].float(), rtol=1e-4, atol=1e-4)


def test_every_layer_has_a_learned_lens_beside_its_controls(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    sample = draw_sample([sentences_of(model, lines(20, 5))], 10)
    found = measure(model, store, sample, torch.Generator().manual_seed(0), (2, 1))
    assert [fit.layer for fit in found.fits] == list(store.memories)
    assert found.fits[-1].learned.estimate == found.fits[-1].identity.estimate == 1.0
    assert {row.layer for row in found.rows if row.lens == LEARNED} == set(store.memories)
    rows = learned_lens_chart(found).to_dict()["data"]["values"]
    assert len(rows) == 3 * len(found.fits)


def cka(one: torch.Tensor, other: torch.Tensor) -> float:
    """Linear CKA by features: ||Y' X||^2 / (||X' X|| ||Y' Y||)."""
    x, y = (each.double() - each.double().mean(dim=0) for each in (one, other))
    return float((y.T @ x).norm() ** 2 / ((x.T @ x).norm() * (y.T @ y).norm()))


def test_cka_is_that_of_its_definition_and_does_not_see_a_rotation() -> None:
    draw = torch.Generator().manual_seed(0)
    one, other = torch.randn(40, 5, generator=draw), torch.randn(40, 7, generator=draw)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=draw)).Q
    sets = [one, other, 3 * one @ turn + 1]
    found, shuffled = alike([inner_products(each) for each in sets], draw)
    for row, first in enumerate(sets):
        for column, second in enumerate(sets):
            assert float(found[row, column]) == pytest.approx(cka(first, second), abs=1e-5)
    assert float(found[0, 2]) == pytest.approx(1, abs=1e-5)
    assert float(shuffled[0, 2]) < 0.6


def test_every_two_layers_are_compared_at_the_same_places_and_tokens(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    states = lens_states(model, store, torch.Generator().manual_seed(0))
    found = similarity(model, states, store.memories, torch.Generator().manual_seed(1))
    assert [(one.layer, one.other) for one in found] == [(1, 2), (1, 3), (2, 3)]
    for pair in found:
        two = [states.outputs[number] for number in (pair.layer, pair.other)]
        assert pair.states == pytest.approx(cka(*two), abs=1e-4)
        two = [
            logits(model, value_vectors(model.layer(number)), "direction").T
            for number in (pair.layer, pair.other)
        ]
        assert pair.values == pytest.approx(cka(*two), abs=1e-3)
        assert 0 <= pair.shuffled_states < pair.states
        assert 0 <= pair.shuffled_values <= 1
