from __future__ import annotations

import random

import pytest
import torch

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.figures.patterns import patterns_chart
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.patterns.analysis import patterns_by_rule
from ffmem.patterns.clusters import content_words
from ffmem.patterns.embeddings import WordStates
from ffmem.patterns.prefixes import prefix_at, random_prefixes, trigger_prefixes
from ffmem.patterns.surface_patterns import Background
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import scanned_lines
from tests.analyses.planted import filler


@pytest.fixture(scope="module")
def store(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    draw = random.Random(0)
    lines = [" ".join(filler(draw))[:55] for _ in range(300)]
    return scanned_lines(relu, tmp_path_factory.mktemp("study") / "scan", lines, top=50, sample=32)


def test_triggers_come_back_as_the_store_shows_them(store: ScanStore) -> None:
    key = Address(2, 5)
    shown = store.triggers(key)
    found = trigger_prefixes(store, key)
    assert [(p.text, p.last, c) for p, c in found] == [
        (t.before + t.last, t.last, t.coefficient) for t in shown
    ]


def test_random_prefixes_are_distinct_places_short_of_the_whole_sentence(store: ScanStore) -> None:
    found = random_prefixes(store, 500, seed=3)
    assert len({(p.sentence, len(p.ids)) for p in found}) == 500
    assert all(0 < len(p.ids) < len(store.sentences.token_ids(p.sentence)) for p in found)
    assert found == random_prefixes(store, 500, seed=3)
    assert found != random_prefixes(store, 500, seed=4)


def test_states_of_words_are_those_of_the_prefix_read_alone(
    relu: LanguageModel, store: ScanStore
) -> None:
    background = Background.of(random_prefixes(store, 200, 0))
    states = WordStates(relu, background, layer=2)
    long, short = prefix_at(store, 4, 40), prefix_at(store, 4, 33)
    both = states([short, long], [frozenset(), frozenset(content_words(long)[:1])])
    for prefix, first, mean in ((short, 0, both[0]), (long, 1, both[1])):
        o = record(relu, torch.tensor([[relu.bos or 0, *prefix.ids]]), "o")[1].o[0, 1:]
        expected = torch.zeros(relu.hidden_size)
        for at in content_words(prefix)[first:]:
            word, start, end = prefix.words[at]
            rare = (background.words[word.lower()] + 1) / (background.prefixes + 1)
            expected -= torch.tensor(rare).log() * o[start:end].mean(dim=0)  # a token is a letter
        assert torch.allclose(mean, expected, atol=1e-4)


def test_a_study_counts_every_key_and_carries_its_controls(
    relu: LanguageModel, store: ScanStore
) -> None:
    study = patterns_by_rule(store, lambda background: WordStates(relu, background), keys=4)
    assert [layer.keys for layer in study.summary.layers] == [4, 4, 4]
    known = [Address.parse(name) for names in study.drawn.values() for name in names]
    seen = sum(min(25, len(store.triggers(key))) for key in known)
    assert study.summary.overall.triggers == seen
    assert {control.kind: control.false_patterns.n for control in study.controls} == {
        "random": 12,
        "matched": 12,
    }
    assert all(control.false_patterns.estimate <= 0.25 for control in study.controls)
    assert {record.key for record in study.records} <= set(known)
    assert {row.on for row in study.held_out} >= {"keys"}
    bars = patterns_chart(study.summary, study.controls).to_dict()["data"]["values"]
    assert len(bars) == 3 * 4
    for layer in (1, 2, 3):
        assert sum(b["share"] for b in bars if b["layer"] == layer) == pytest.approx(1)


def test_too_little_text_is_refused(relu: LanguageModel, relu_store: ScanStore) -> None:
    with pytest.raises(StoreError, match="scan more text"):
        patterns_by_rule(relu_store, lambda background: WordStates(relu, background))
