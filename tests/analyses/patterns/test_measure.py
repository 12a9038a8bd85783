from __future__ import annotations

import random

import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.patterns.charts import patterns_chart
from ffmem.analyses.patterns.measure import near_misses, patterns_by_rule
from ffmem.analyses.patterns.prefixes import (
    CONTROLS,
    PseudoKeys,
    random_prefixes,
    trigger_prefixes,
)
from ffmem.analyses.patterns.record import PatternResults
from ffmem.analyses.patterns.semantic_patterns import WordContexts
from ffmem.analyses.patterns.surface_patterns import Background
from ffmem.errors import StoreError
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import scanned_lines
from tests.analyses.planted import NEWS, WAR, filler, prefixes


@pytest.fixture(scope="module")
def store(relu: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    draw = random.Random(0)
    lines = [" ".join(filler(draw))[:55] for _ in range(300)]
    return scanned_lines(relu, tmp_path_factory.mktemp("study") / "scan", lines, top=50, sample=32)


@pytest.fixture(scope="module")
def study(store: ScanStore) -> PatternResults:
    return patterns_by_rule(store, keys=6)


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


def test_a_study_counts_every_key_and_carries_its_controls(
    store: ScanStore, study: PatternResults
) -> None:
    assert [layer.keys for layer in study.summary.layers] == [6, 6, 6]
    known = [Address.parse(name) for names in study.drawn.values() for name in names]
    seen = sum(min(25, len(store.triggers(key))) for key in known)
    assert study.summary.overall.triggers == seen
    counts = {control.kind: control.false_patterns.n for control in study.controls}
    assert counts == dict.fromkeys(CONTROLS, 3 * 6 * 7)  # as the keys, so a look at more has more
    assert study.semantic_keys is not None
    assert study.semantic_keys.n == sum(layer.keys for layer in study.summary.layers)
    assert all(control.false_patterns.estimate <= 0.25 for control in study.controls)
    assert {record.key for record in study.records} <= set(known)
    assert {row.on for row in study.held_out} >= {"keys"}
    bars = patterns_chart(study.summary, study.controls).to_dict()["data"]["values"]
    assert len(bars) == 3 * 4
    for layer in (1, 2, 3):
        assert sum(b["share"] for b in bars if b["layer"] == layer) == pytest.approx(1)


def test_strangers_are_triggers_of_as_many_keys_of_the_layer(store: ScanStore) -> None:
    pseudo = PseudoKeys(random_prefixes(store, 500, 0), seed=0, shown=8)
    found = pseudo.strangers(2, store)
    assert (found.kind, len(found.shown)) == ("strangers", 8)
    of_key = {
        key: {(p.sentence, len(p.ids)) for p, _ in trigger_prefixes(store, key)[:8]}
        for key in store.cells.in_layer(2, list(range(store.memories[2])))
    }
    for prefix in found.shown:
        assert any((prefix.sentence, len(prefix.ids)) in those for those in of_key.values())
    assert len({prefix.sentence for prefix in found.shown}) == 8
    most = max(
        sum((p.sentence, len(p.ids)) in those for p in found.shown) for those in of_key.values()
    )
    assert most < 8  # not one key's


def test_near_misses_are_the_strongest_of_the_sample_below_the_triggers(store: ScanStore) -> None:
    key = Address(2, 5)
    triggers = [prefix for prefix, _ in trigger_prefixes(store, key)]
    found = near_misses(store, key, triggers)
    sample = trigger_prefixes(store, key, "sample")
    assert 0 < len(found) <= -(-len(sample) // 4)
    assert not set(found) & set(triggers)
    coefficients = dict(sample)
    weakest = min(coefficients[prefix] for prefix in found)
    others = [c for p, c in sample if p not in triggers and p not in found]
    assert all(coefficient <= weakest for coefficient in others)


def test_words_that_keep_the_same_company_are_near_and_others_are_not() -> None:
    """The embedding knows nothing but the text: two made-up topics, words of each side by side."""
    draw = random.Random(0)
    texts = [" ".join(draw.sample(draw.choice((WAR, NEWS)), 6)) for _ in range(400)]
    background = Background.of(prefixes([text.split() for text in texts]))
    embed = WordContexts(texts, background)
    one, same, other = prefixes([WAR[:4], WAR[5:9], NEWS[:4]])
    vectors = torch.nn.functional.normalize(embed([one, same, other], [frozenset()] * 3), dim=1)
    assert vectors[0] @ vectors[1] > 0.7
    assert vectors[0] @ vectors[2] < 0.4
    gone = embed([one], [frozenset(range(4))])
    assert not gone.any()  # nothing is left once its words are removed
    shuffled = [word for text in texts for word in text.split()]
    draw.shuffle(shuffled)
    mixed = WordContexts([" ".join(shuffled[i : i + 6]) for i in range(0, 2400, 6)], background)
    vectors = torch.nn.functional.normalize(mixed([one, same, other], [frozenset()] * 3), dim=1)
    assert abs(float(vectors[0] @ vectors[1] - vectors[0] @ vectors[2])) < 0.4


def test_too_little_text_is_refused(relu_store: ScanStore) -> None:
    with pytest.raises(StoreError, match="scan more text"):
        patterns_by_rule(relu_store)
