"""Two scans memory by memory: nothing moves of itself, and a permutation is recovered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ffmem.address import Address
from ffmem.analyses.drift.matching import match_memories
from ffmem.analyses.drift.measure import compare_memories, memory_drift
from ffmem.cli.main import ffmem
from ffmem.errors import StoreError
from ffmem.memories.folded_weights import model_cosines
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import FEW_LINES, lines, scanned_lines

CELL = Address(3, 7, "+")
TEXTS = [*FEW_LINES, *lines(120, 3)]


@dataclass(frozen=True)
class Scans:
    """A model, the same with its memories in another order, one changed memory, another model."""

    plain: ScanStore
    permuted: ScanStore
    changed: ScanStore
    other: ScanStore
    order: list[np.ndarray]  # of each layer: where each memory of `permuted` was before


def fresh() -> LanguageModel:
    torch.manual_seed(5)
    return wrap(tiny_model("opt"), tiny_tokenizer(), "tiny:opt")


def permute(model: LanguageModel) -> list[np.ndarray]:
    """Put the memories of every layer into another order; what the layer computes is the same."""
    found = []
    with torch.no_grad():
        for block in model.model.model.decoder.layers:
            order = torch.randperm(block.fc1.weight.shape[0])
            block.fc1.weight.copy_(block.fc1.weight[order])
            block.fc1.bias.copy_(block.fc1.bias[order])
            block.fc2.weight.copy_(block.fc2.weight[:, order])
            found.append(order.numpy())
    return found


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Scans:
    folder = tmp_path_factory.mktemp("drift")

    def scan(model: LanguageModel, name: str) -> ScanStore:
        place = folder / name
        place.mkdir()
        return scanned_lines(model, place / "scan", TEXTS, top=20)

    permuted, changed = fresh(), fresh()
    order = permute(permuted)
    with torch.no_grad():
        block = changed.model.model.decoder.layers[2]  # the last, so that nothing else moves
        block.fc1.weight[7] *= -1
        block.fc1.bias[7] = 0.5
        block.fc2.weight[:, 7] *= -1
    torch.manual_seed(6)
    other = wrap(tiny_model("gpt2"), tiny_tokenizer(), "tiny:gpt2")
    return Scans(
        scan(fresh(), "plain"),
        scan(permuted, "permuted"),
        scan(changed, "changed"),
        scan(other, "other"),
        order,
    )


def test_a_model_compared_with_itself_has_not_moved(scans: Scans) -> None:
    found = memory_drift(scans.plain, scans.plain)
    assert found.triggers is not None
    assert max(found.triggers.max(), found.fires.max()) == 0
    assert found.value.max() < 1e-6
    assert all(layer.drift < 1e-6 for layer in found.layers)


def test_the_changed_memory_has_moved_most(scans: Scans) -> None:
    found = memory_drift(scans.plain, scans.changed)
    first, second = found.table(found.order()[:2])
    assert first.address == "L3.7"
    assert first.value > 0.9
    assert first.drift > 10 * second.drift
    assert found.table(found.order(layer=1)[:1])[0].drift < 0.05


def test_directions_are_compared_where_the_weights_are_read(scans: Scans) -> None:
    changed = fresh()
    with torch.no_grad():
        block = changed.model.model.decoder.layers[2]
        block.fc1.weight[7] *= -1
        block.fc2.weight[:, 5] *= -1
    keys, values = model_cosines(fresh(), changed, scans.plain.memories)
    cosines = (keys.double().numpy(), values.double().numpy())
    found = memory_drift(scans.plain, scans.plain, cosines)
    assert found.key is not None
    moved = {"L3.7": "key", "L3.5": "value"}
    for row in found.table(found.order()[:2]):
        assert getattr(row, moved.pop(row.address)) > 0.999
    assert not moved
    assert found.table(found.order()[2:3])[0].drift < 1e-6
    assert found.layers[0].key is not None
    assert found.layers[0].key < 1e-6


def test_matching_recovers_a_permutation(scans: Scans) -> None:
    found = match_memories(scans.plain, scans.permuted)
    cells = scans.plain.cells
    expected = np.empty(cells.count, dtype=np.int64)
    for layer, order in enumerate(scans.order, 1):
        rows = cells.rows_of(layer)
        expected[rows.start + order] = np.arange(rows.start, rows.stop)
    alive = found.alive
    right = found.best[alive] == expected[alive]
    # Equal coefficients may stand in another order, so that a few triggers differ.
    assert right.mean() > 0.9
    assert found.mutual[alive].mean() > 0.9
    assert found.score[alive].mean() > 0.95
    assert found.share > 0.9


def test_chance_matches_worse_than_the_permuted_model(scans: Scans) -> None:
    found = match_memories(scans.plain, scans.permuted)
    assert found.control[found.alive].mean() < 0.7 * found.score[found.alive].mean()
    stranger = match_memories(scans.plain, scans.other)
    assert stranger.score[stranger.alive].mean() < 0.9
    assert len(stranger.table(stranger.order()[:5])) == 5


def test_places_can_be_compared_across_tokenizers(scans: Scans) -> None:
    """By the word that they end in: of one model the same memories match."""
    from ffmem.analyses.drift.matching import best_matches, trigger_places

    mine = trigger_places(scans.plain, by_word=True)
    best, score = best_matches(mine, trigger_places(scans.permuted, by_word=True))
    alive = np.asarray(scans.plain.array("fires")) > 0
    assert score[alive].mean() > 0.95
    assert (best[alive] >= 0).all()


def test_scans_that_cannot_be_compared_are_refused_in_a_sentence(
    scans: Scans, tmp_path: Path
) -> None:
    gated = scanned_lines(wrap_llama(), tmp_path / "gated", TEXTS)
    with pytest.raises(StoreError, match="--match"):
        memory_drift(scans.plain, gated)
    with pytest.raises(StoreError, match="--match"):
        compare_memories(scans.plain, gated, models=pytest.fail)  # no model is loaded for it
    with pytest.raises(StoreError, match="different texts"):
        match_memories(scans.plain, scanned_lines(fresh(), tmp_path / "scan", lines(20, 9)))


def wrap_llama() -> LanguageModel:
    return wrap(tiny_model("llama"), tiny_tokenizer(), "tiny:llama")


def test_the_command_prints_and_saves_what_moved(
    scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folders = [str(store.folder.root) for store in (scans.plain, scans.changed)]
    shown = CliRunner().invoke(ffmem, ["compare", *folders, "--memories", "-n", "2"])
    assert shown.exit_code == 0, shown.output
    assert "L3.7" in shown.output
    matches = CliRunner().invoke(ffmem, ["compare", *folders, "--memories", "--match"])
    assert max(map(len, (shown.output + matches.output).splitlines())) <= 80
    data = json.loads(
        CliRunner().invoke(ffmem, ["compare", *folders, "--memories", "--json", "-n", "3"]).stdout
    )
    assert [one["address"] for one in data["drifts"]][0] == "L3.7"
    assert len(data["drifts"]) == 3
    permuted = [folders[0], str(scans.permuted.folder.root)]
    data = json.loads(
        CliRunner().invoke(ffmem, ["compare", *permuted, "--memories", "--match", "--json"]).stdout
    )
    assert data["share"] > 0.9
    assert data["matches"]
    wrong = CliRunner().invoke(ffmem, ["compare", *folders, "--memories", "--layer", "9"])
    assert "no layer 9" in str(wrong.exception)


def test_a_memory_that_becomes_weak_has_moved_though_it_is_as_often_positive(
    tmp_path: Path,
) -> None:
    """A gated memory whose gate is made small is positive as often as before, and fires no more."""
    model, weak = wrap_llama(), wrap_llama()
    with torch.no_grad():
        up = weak.model.model.layers[2].mlp.up_proj.weight  # the last, so that nothing else moves
        up[7] *= 2.0**-12
    stores = [
        scanned_lines(one, tmp_path / name, TEXTS)
        for one, name in ((model, "before"), (weak, "after"))
    ]
    found = memory_drift(*stores)
    (row,) = [row for row in found.table(found.order(layer=3)[:4]) if row.address == "L3.7+"]
    positive = [np.asarray(one.positive_counts)[stores[0].cells.row(CELL)] for one in stores]
    assert positive[0] == positive[1] > 0
    assert row.rate_before > 0.05
    assert row.rate_after == 0
    assert row.fires == 1
    assert row.strength > 0.99
    assert row.mean_before > 1000 * row.mean_after


def test_firing_by_a_higher_threshold_is_counted_as_brute_force_does(
    gated_store: ScanStore, gated: LanguageModel
) -> None:
    """From the histogram a store keeps; at its own threshold it is the count of all pages."""
    for layer in gated_store.memories:
        rows, own = gated_store.cells.rows_of(layer), gated_store.threshold(layer)
        assert (gated_store.fires_above(layer, own) == gated_store.fire_counts[rows]).all()
        found = gated_store.fires_above(layer, 4 * own)
        every = []
        for text in FEW_LINES:
            read = record(gated, text, "m")
            m = read.layer(layer).m[0, read.lead : -1].double().numpy()
            every.append(np.concatenate([m, -m], axis=1))
        plain = (np.concatenate(every) > 4 * own).sum(axis=0)
        assert abs(found - plain).max() <= 1  # a coefficient may lie on the bar but for rounding
        assert (found == plain).mean() > 0.99
        assert 0 < found.sum() < 0.8 * gated_store.fire_counts[rows].sum()
