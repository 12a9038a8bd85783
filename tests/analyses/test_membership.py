from __future__ import annotations

import pytest
import torch

from ffmem.analyses import membership as module
from ffmem.analyses.inputs.prefix_sample import PrefixSample, draw_sample
from ffmem.analyses.membership import auc_interval, membership, prefix_sets, scores
from ffmem.figures.membership import charts
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import lines, scanned_lines, sentences_of

Planted = tuple[LanguageModel, ScanStore, dict[int, tuple[int, int]]]


@pytest.fixture(scope="module")
def store(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    folder = tmp_path_factory.mktemp("members") / "scan"
    return scanned_lines(relu, folder, list(dict.fromkeys(lines(400, 1))), top=3, sample=16)


def draw_prefixes(model: LanguageModel, texts: list[str]) -> PrefixSample:
    return draw_sample([sentences_of(model, texts)], 60)


def test_the_score_of_a_prefix_is_that_of_the_slow_way(
    relu: LanguageModel, store: ScanStore
) -> None:
    _, members, _ = prefix_sets(store, [5, 9, 3], torch.Generator().manual_seed(0))
    found = scores(relu, store, members)
    for row, prefix in enumerate(members.prefixes):
        tokens = torch.tensor([[relu.bos or 0, *prefix.tolist()]])
        for place, layer in enumerate(store.memories):
            largest = record(relu, tokens, "m")[layer - 1].m[0, 1:].amax(dim=0)
            ratios = []
            for index, cell in enumerate(store.cells.in_layer(layer, list(range(len(largest))))):
                others = [
                    trigger.coefficient
                    for trigger in store.triggers(cell)[:2]
                    if trigger.sentence != int(members.sentences[row])
                ]
                if others:
                    ratios.append(min(max(float(largest[index]), 0) / others[0], 2.0))
            assert float(found[row, place]) == pytest.approx(sum(ratios) / len(ratios), rel=1e-3)


def test_the_two_sides_are_other_sentences_of_the_same_lengths(store: ScanStore) -> None:
    lengths = [4, 9, 1000, 2, 7]
    used, one, other = prefix_sets(store, lengths, torch.Generator().manual_seed(0))
    assert used == [0, 1, 3, 4]  # no sentence is that long
    for side in (one, other):
        assert [len(prefix) for prefix in side.prefixes] == [4, 9, 2, 7]
    assert not set(one.sentences.tolist()) & set(other.sentences.tolist())


def test_memories_of_the_scanned_text_tell_it_from_other_text(planted: Planted) -> None:
    """Layer 3 of the planted model has one memory for each letter that begins a scanned text."""
    model, store, _ = planted
    strange = ["xqx", "qxxq", "qqx", "xxqx"] * 10
    found = membership(
        model, store, draw_prefixes(model, strange), torch.Generator().manual_seed(0)
    )
    assert found.pairs >= 3
    (layer,) = (row for row in found.layers if row.layer == 3)
    assert layer.auc.estimate > 0.9
    assert layer.split.estimate < 0.9


def test_text_of_the_same_kind_is_not_told_apart_by_a_model_that_has_learned_nothing(
    relu: LanguageModel, store: ScanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    same = membership(relu, store, draw_prefixes(relu, lines(80, 9)), draw)
    assert same.pairs >= 30
    assert 0.3 < same.auc.estimate < 0.7
    assert 0.3 < same.split.estimate < 0.7
    assert len(charts(same)["membership"].to_dict()["data"]["values"]) == 2 * len(same.layers)
    monkeypatch.setattr(module, "PAIRS", 0)
    nothing = membership(relu, store, draw_prefixes(relu, lines(80, 9)), draw)
    assert nothing.pairs == 0
    assert nothing.auc.n == 0


def test_the_interval_of_an_auc_holds_it_and_ties_count_half() -> None:
    draw = torch.Generator().manual_seed(0)
    clear = auc_interval(torch.arange(50.0) + 100, torch.arange(50.0), draw)
    assert (clear.estimate, clear.low, clear.high) == (1.0, 1.0, 1.0)
    tied = auc_interval(torch.zeros(30), torch.zeros(30), draw)
    assert tied.estimate == 0.5
    one, other = torch.randn(2, 80, generator=draw)
    mixed = auc_interval(one, other, draw)
    assert mixed.low < mixed.estimate < mixed.high
