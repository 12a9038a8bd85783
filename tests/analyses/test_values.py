from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import (
    agreement_of_shuffles,
    permuted_model,
    random_rows_like,
    shuffle_rows,
    unigram_match,
    untrained_model,
)
from ffmem.analyses.inputs.layer_readings import tops_of_both_signs
from ffmem.analyses.inputs.value_rankings import (
    LayerValueRankings,
    cell_scores,
    other_keys_tokens,
    rank_values,
    ranks_by_counting,
    read_cells,
    target_ranks,
    trigger_tokens,
)
from ffmem.analyses.statistics import lower_and_upper
from ffmem.analyses.values.charts import mass_chart
from ffmem.analyses.values.measure import exclusions, measure
from ffmem.analyses.values.record import Values
from ffmem.memories import projection
from ffmem.memories.projection import logits
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.store.scan_store import ScanStore
from tests.near_ties import assert_best, assert_rank

Scanned = tuple[LanguageModel, ScanStore]
Planted = tuple[LanguageModel, ScanStore, dict[int, tuple[int, int]]]


def read(model: LanguageModel, store: ScanStore) -> tuple[list[LayerValueRankings], Values]:
    draw = torch.Generator().manual_seed(0)
    parts = list(rank_values(model, store, draw))
    return parts, measure(model, store, parts, draw)


def test_every_number_is_that_of_the_slow_obvious_way(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    parts, _ = read(model, store)
    for part in parts:
        layer = model.layer(part.layer)
        for cell in range(0, len(part.top), 7):
            address = store.cells.in_layer(part.layer, [cell])[0]
            value = value_vectors(layer)[address.index]
            scores = logits(model, -value if address.sign == "-" else value, "direction")
            assert part.address(cell) == address
            assert_best(part.top[cell], scores)
            assert float(part.probability[cell]) == pytest.approx(float(scores.softmax(0).max()))
            triggers = store.triggers(address)
            assert int(part.triggers.filled[cell].sum()) == len(triggers)
            for slot, trigger in enumerate(triggers):
                ids = model.encode(trigger.before + trigger.last + trigger.next)[0]
                assert int(part.triggers.next[cell, slot]) == int(ids[-1])
                assert int(part.triggers.last[cell, slot]) == int(ids[-2])
                assert_rank(part.ranks[cell, slot], ids[-1], scores)
            assert (part.ranks[cell, len(triggers) :] == -1).all()


def test_agreement_is_the_share_of_rank_zero(scanned_toy: Scanned) -> None:
    parts, found = read(*scanned_toy)
    rows = iter(zip(found.agreement, found.ranks, strict=True))
    for part in parts:
        for name, cells in part.groups():
            one, other = next(rows)
            zero = int((part.ranks[cells, 0] == 0).sum())
            assert one.cells == other.cells == name
            assert one.all.estimate == zero / len(part.top[cells])
            assert one.filled.n == other.n <= one.all.n


def test_signed_cells_are_given_apart_and_pooled(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    _, found = read(model, store)
    names = [row.cells for row in found.agreement]
    assert names == (["+", "-", "both"] if model.gated else [""]) * len(model.layers)


def test_bins_hold_every_cell_once(scanned_toy: Scanned) -> None:
    parts, found = read(*scanned_toy)
    cells = sum(len(part.top) for part in parts)
    assert sum(bin_.agreement.n for bin_ in found.equal_width) == cells
    assert sum(bin_.agreement.n for bin_ in found.quantile_bins) == cells
    sizes = [bin_.agreement.n for bin_ in found.quantile_bins]
    assert max(sizes) - min(sizes) <= 2
    hits = sum(round(b.agreement.estimate * b.agreement.n) for b in found.quantile_bins)
    assert hits == sum(int((part.ranks[:, 0] == 0).sum()) for part in parts)


def test_planted_memories_agree_and_shuffled_ones_do_not(planted: Planted) -> None:
    model, store, memories = planted
    part = list(rank_values(model, store, torch.Generator().manual_seed(0)))[2]
    chosen = list(memories)
    assert [int(part.top[i]) for i in chosen] == [memories[i][1] for i in chosen]
    assert (part.ranks[chosen][part.triggers.filled[chosen]] == 0).all()
    broken = agreement_of_shuffles(
        part.top[chosen], part.triggers.next[chosen, 0], torch.Generator().manual_seed(1)
    )
    assert 0.05 < broken.estimate < 0.45  # one in five by chance


@pytest.mark.parametrize("kind", ["llama", "fairseq_lm"])
def test_cells_of_two_signs_are_read_as_by_their_own_values(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once where the opposite value has the opposite logits, and twice by an adaptive head."""
    model = load(f"tiny:{kind}")
    values = value_vectors(model.layer(2))
    whole = logits(model, torch.cat([values, -values]), "direction")
    monkeypatch.setattr(projection, "CHUNK_BYTES", 4 * model.vocab_size * 7)
    for part, scores in cell_scores(model, 2, signed=True):
        torch.testing.assert_close(scores, whole[part])
    wanted = torch.arange(len(whole))[:, None].expand(-1, 3) % model.vocab_size
    found, certain, ranks, *_ = read_cells(cell_scores(model, 2, signed=True), wanted, wanted)
    assert_best(found, whole)
    torch.testing.assert_close(certain, whole.softmax(dim=1).amax(dim=1))
    for row, (token, rank) in enumerate(zip(wanted[:, 0], ranks[:, 0], strict=True)):
        assert_rank(rank, token, whole[row])
    top, opposite = tops_of_both_signs(model, values)
    assert_best(top, whole[: len(values)])
    assert_best(opposite, whole[len(values) :])


def test_shuffles_break_up_pairs_and_a_missing_token_agrees_with_nothing() -> None:
    """Against shuffling rows and comparing them, of a column of a table."""
    tokens = torch.randint(-1, 4, (90, 3), generator=torch.Generator().manual_seed(2))
    found, wanted = tokens[:, 0], tokens[:, 1]
    draw, shares = torch.Generator().manual_seed(3), []
    for _ in range(200):
        other = shuffle_rows(wanted, draw)
        shares.append(float(((found == other) & (other >= 0)).double().mean()))
    fast = agreement_of_shuffles(found, wanted, torch.Generator().manual_seed(3))
    assert fast.estimate == pytest.approx(sum(shares) / 200)
    assert (fast.low, fast.high) == pytest.approx(np.quantile(shares, [0.025, 0.975]).tolist())


def test_the_released_target_is_the_token_before(planted: Planted) -> None:
    model, store, memories = planted
    tokens = trigger_tokens(store, 3)
    for index, (letter, promised) in memories.items():
        assert (tokens.next[index][tokens.filled[index]] == promised).all()
        assert (tokens.last[index][tokens.filled[index]] == letter).all()


def test_the_most_confident_planted_values_are_found_with_their_trigger(planted: Planted) -> None:
    model, store, memories = planted
    _, found = read(model, store)
    rows = {row.address: row for row in found.predictive.rows}
    for index, (letter, promised) in memories.items():
        row = rows[Address(3, index)]
        assert row.prediction == model.token_text(promised)
        assert row.precision == 1
        assert (row.before[-1], row.next) == (model.token_text(letter), model.token_text(promised))
    assert found.predictive.largest.agreeing >= len(memories)


def test_counts_say_what_is_left_out(planted: Planted) -> None:
    model, store, memories = planted
    _, found = read(model, store)
    dead = int((store.array("trigger_coefficients")[:, 0] == 0).sum())
    assert found.counts["dead cells"] == dead > 0
    assert found.counts["cells"] == model.memories


def test_the_unknown_token_is_counted(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    parts, found = read(model, store)
    assert found.counts["top triggers followed by the unknown token"] == 0
    common = int(parts[0].triggers.next[:, 0].mode().values)  # as if it were the unknown one
    counts = exclusions(parts, common)
    cells = [(part, cell) for part in parts for cell in range(len(part.top))]
    follows = sum(int(part.triggers.next[cell, 0]) == common for part, cell in cells)
    assert counts["top triggers followed by the unknown token"] == follows > 0
    promoted = sum(int(part.top[cell]) == common for part, cell in cells)
    assert counts["values with the unknown token on top"] == promoted


@pytest.mark.parametrize("ranks", [target_ranks, ranks_by_counting])
def test_ranks_count_ties_in_order_of_the_ids(ranks: Callable[[Tensor, Tensor], Tensor]) -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(-3, 4, (20, 30), generator=draw).float()
    scores[0] = torch.tensor([-0.0, 0.0] * 15)
    scores[10:] = torch.randn(10, 30, generator=draw)  # no ties
    wanted = torch.randint(-1, 30, (20, 12), generator=draw)
    found = ranks(scores, wanted)
    for row in range(20):
        order = scores[row].argsort(descending=True, stable=True).tolist()
        expected = [order.index(int(token)) if token >= 0 else -1 for token in wanted[row]]
        assert found[row].tolist() == expected


def test_unigram_match_is_the_chance_of_a_random_pair() -> None:
    found, text = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 3])
    pairs = [int(a == b) for a in found for b in text]
    assert unigram_match(found, text, 4) == sum(pairs) / len(pairs)


def test_random_rows_like_keep_the_groups() -> None:
    groups = torch.arange(4).repeat_interleave(10)
    chosen = torch.tensor([0, 1, 2, 30])
    found = random_rows_like(groups, chosen, torch.Generator().manual_seed(0))
    assert groups[found].tolist() == [0, 0, 0, 3]
    assert len(set(found.tolist())) == 4


def test_a_permuted_model_has_the_weights_of_every_tensor_in_another_order() -> None:
    """As the recipe that the shipped readings were drawn with: tensors in the order of names."""
    for kind in ("opt", "mixtral"):
        model = load(f"tiny:{kind}")
        one, same, other = permuted_model(model), permuted_model(model), permuted_model(model, 1)
        draw = torch.Generator().manual_seed(0)
        found, again, differs = (dict(part.model.named_parameters()) for part in (one, same, other))
        for name, weights in sorted(model.model.named_parameters()):
            order = torch.randperm(weights.numel(), generator=draw)
            assert torch.equal(found[name], weights.flatten()[order].view_as(weights))
            assert torch.equal(found[name], again[name])
        assert any(not torch.equal(found[name], differs[name]) for name in found)
        assert one.name == f"tiny:{kind} with permuted weights"


def test_an_untrained_model_has_the_shape_and_none_of_the_weights(relu: LanguageModel) -> None:
    one, same, other = untrained_model(relu), untrained_model(relu), untrained_model(relu, seed=1)
    assert one.memories == relu.memories
    assert torch.equal(one.layers[0].values, same.layers[0].values)
    assert not torch.equal(one.layers[0].values, other.layers[0].values)
    assert not torch.equal(one.layers[0].values, relu.layers[0].values)


def test_mass_counts_each_next_token_once(scanned_toy: Scanned) -> None:
    model, store = scanned_toy
    parts, found = read(model, store)
    for part in parts:
        foreign = other_keys_tokens(part.triggers.next, part.layer)
        for cell in range(0, len(part.top), 11):
            address = store.cells.in_layer(part.layer, [cell])[0]
            value = value_vectors(model.layer(part.layer))[address.index]
            chances = logits(model, -value if address.sign == "-" else value, "direction").softmax(
                0
            )
            for tokens, mass in ((part.triggers.next, part.mass), (foreign, part.shuffled_mass)):
                known = {token for token in tokens[cell].tolist() if token >= 0}
                expected = float(chances[list(known)].sum()) if known else float("nan")
                assert float(mass[cell]) == pytest.approx(expected, rel=1e-4, nan_ok=True)
    assert len(found.mass) == len(found.agreement)


def test_another_keys_tokens_are_dealt_among_live_keys_and_nobody_keeps_its_own() -> None:
    following = torch.tensor([[1, 2], [-1, -1], [3, -1], [4, 5]])
    found = other_keys_tokens(following, 0)
    assert found[1].tolist() == [-1, -1]
    assert sorted(found[[0, 2, 3]].tolist()) == [[1, 2], [3, -1], [4, 5]]
    assert all(found[row].tolist() != following[row].tolist() for row in (0, 2, 3))


def test_planted_values_hold_what_follows_their_triggers_and_random_ones_do_not(
    planted: Planted, scanned_toy: Scanned
) -> None:
    model, store, _ = planted
    _, found = read(model, store)
    (layer,) = (row for row in found.mass if row.layer == 3)
    assert layer.difference.low > 0
    assert layer.greater.estimate == 1.0
    _, chance = read(*scanned_toy)  # random weights
    for row in chance.mass:
        assert row.greater.low < 0.5 + 0.1
        assert row.difference.low < row.own.estimate / 2


def test_every_layers_mass_is_drawn_beside_its_control(scanned_toy: Scanned) -> None:
    _, found = read(*scanned_toy)
    rows = mass_chart(found).to_dict()["data"]["values"]
    assert {row["series"] for row in rows} == {"own triggers", "keys shuffled"}
    assert len(rows) == 2 * len(found.mass)


def test_tests_of_agreement_rest_on_the_five_strongest_triggers_of_each_key(
    scanned_toy: Scanned,
) -> None:
    """Slowly: trigger by trigger from the store; what is shown is the strongest alone."""
    model, store = scanned_toy
    parts, values = read(model, store)
    found = values.effects.agreement
    shown = (found.strongest_lower, found.strongest_upper), (found.lower, found.upper)
    for most, (low, high) in zip((1, 5), shown, strict=True):
        for effect, layers in zip((low, high), lower_and_upper(parts), strict=True):
            hits = known = 0
            for part in layers:
                for cell in range(len(part.top)):
                    for token in part.triggers.next[cell, :most].tolist():
                        known += token >= 0
                        hits += token == int(part.top[cell])
            assert effect.estimate == pytest.approx(hits / known)
    assert found.rise.estimate == pytest.approx(found.upper.estimate - found.lower.estimate)
