from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.inputs.english import stem
from ffmem.analyses.patterns.held_out import Trial, auc, held_out_scores
from ffmem.analyses.patterns.measure import summarise_patterns
from ffmem.analyses.patterns.prefixes import Prefix, PseudoKeys
from ffmem.analyses.patterns.record import KeyPatterns, Pattern, trigger_labels
from ffmem.analyses.patterns.rule_annotator import RuleAnnotator
from ffmem.analyses.patterns.semantic_patterns import ClusterFinder, WordFields, content_words
from ffmem.analyses.patterns.surface_patterns import Background, shared_features
from tests.analyses.planted import (
    NEWS,
    PLAIN,
    WAR,
    about,
    control_key,
    embedding,
    filler,
    prefixes,
)

KEY = Address(3, 7)


@pytest.fixture(scope="module")
def corpus() -> list[Prefix]:
    draw = random.Random(1)
    stretches = [
        about(draw, draw.choice((WAR, NEWS))) if draw.random() < 0.1 else filler(draw)
        for _ in range(1200)
    ]
    return prefixes(stretches)


@pytest.fixture(scope="module")
def annotator(corpus: list[Prefix]) -> RuleAnnotator:
    background = Background.of(corpus)
    pseudo = PseudoKeys(corpus, seed=0)
    keys = [control_key(pseudo.random(1).shown) for _ in range(150)]
    return RuleAnnotator(
        background, ClusterFinder.calibrate(embedding, background, corpus, {"random": keys})
    )


def planted(kind: str, count: int = 25, seed: int = 2) -> list[Prefix]:
    """Triggers of a key that fires on one known thing."""
    draw = random.Random(seed)
    stretches = {
        "word": lambda: [*filler(draw), "press"],
        "bigram": lambda: [*filler(draw), "lantern", "of"],
        "topic": lambda: about(draw, WAR),
        "nothing": lambda: filler(draw),
    }
    return prefixes([stretches[kind]() for _ in range(count)], first=10_000)


EXPECTED = {
    "word": [("shallow", "ends with ‘press’", 25)],
    "bigram": [("shallow", "ends with ‘lantern of’", 25)],
    "nothing": [],
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_planted_surface_pattern_is_found_and_nothing_else(
    annotator: RuleAnnotator, kind: str
) -> None:
    found = annotator.patterns(KEY, planted(kind))
    assert [(p.kind, p.description, len(p.ranks)) for p in found] == EXPECTED[kind]


def test_a_planted_topic_is_found_as_semantic_and_named_by_its_words(
    annotator: RuleAnnotator,
) -> None:
    found = annotator.patterns(KEY, planted("topic"))
    assert [p.kind for p in found] == ["semantic"]
    assert len(found[0].ranks) >= 20
    words = found[0].description.removeprefix("about: ").split(", ")
    assert len(words) == 3
    assert set(words) <= set(WAR)


def test_two_topics_are_two_patterns_that_share_no_trigger(annotator: RuleAnnotator) -> None:
    draw = random.Random(6)
    stretches = [about(draw, WAR) for _ in range(13)] + [about(draw, NEWS) for _ in range(12)]
    found = annotator.patterns(KEY, prefixes(stretches, first=40_000))
    one, other = sorted(p.ranks for p in found if p.kind == "semantic")
    assert len(one) >= 10
    assert len(other) >= 10
    assert max(one) <= 13 < min(other)


def test_nothing_is_found_when_the_triggers_are_dealt_out_anew(
    annotator: RuleAnnotator, corpus: list[Prefix]
) -> None:
    draw = random.Random(4)
    everything = [p for kind in ("word", "bigram", "topic") for p in planted(kind)] + corpus
    false = sum(bool(annotator.patterns(KEY, draw.sample(everything, 25))) for _ in range(100))
    assert false <= 10


def test_what_is_common_everywhere_is_no_pattern(corpus: list[Prefix]) -> None:
    frequent = [Prefix.of(f"{prefix.text} of") for prefix in corpus[:25]]
    alone = shared_features(frequent, Background.of(corpus))
    assert [found.feature.description for found in alone] == ["ends with ‘of’"]
    as_elsewhere = Background.of([Prefix.of(f"{prefix.text} of") for prefix in corpus])
    assert shared_features(frequent, as_elsewhere) == []


def test_press_and_news_are_two_patterns_one_of_each_class(annotator: RuleAnnotator) -> None:
    draw = random.Random(8)
    stretches = [[*filler(draw), "press"] for _ in range(6)]
    stretches += [[*about(draw, NEWS), "press"] for _ in range(6)]
    stretches += [about(draw, NEWS) for _ in range(8)]
    stretches += [filler(draw) for _ in range(5)]
    found = annotator.patterns(KEY, prefixes(stretches, first=20_000))
    assert [(p.kind, p.ranks) for p in found] == [
        ("shallow", tuple(range(1, 13))),
        ("semantic", tuple(range(7, 21))),
    ]
    assert found[0].description == "ends with ‘press’"
    assert set(found[1].description.removeprefix("about: ").split(", ")) <= set(NEWS)
    labels = trigger_labels(found, 25)
    assert labels == (
        ["shallow"] * 6 + ["shallow + semantic"] * 6 + ["semantic"] * 8 + ["not covered"] * 5
    )


def test_forms_of_a_word_are_one_pattern(annotator: RuleAnnotator) -> None:
    draw = random.Random(3)
    forms = ["base", "bases"] * 12 + ["based"]
    found = annotator.patterns(KEY, prefixes([[*filler(draw), form] for form in forms], 30_000))
    assert [(p.description, len(p.ranks)) for p in found] == [("ends with a form of ‘bas-’", 25)]
    assert {stem(w) for w in ("planned", "planning", "plans", "plan")} == {"plan"}
    assert stem("press") == stem("presses") == "press"


def test_held_out_triggers_are_told_from_random_ones_only_by_real_patterns(
    annotator: RuleAnnotator, corpus: list[Prefix]
) -> None:
    trials = []
    for kind in ("word", "bigram", "topic"):
        triggers = planted(kind, 50)
        rules = annotator.rules(KEY, triggers[:25])
        trials.append(Trial(rules, triggers[25:], corpus[:25], corpus[25:50]))
    scores = {(row.kind, row.against): row for row in held_out_scores(annotator, trials, "keys")}
    assert scores["shallow", "random"].auc.estimate == 1.0
    assert scores["shallow", "random"].recall == 1.0
    assert scores["semantic", "random"].auc.estimate > 0.9  # some random ones are on war too
    assert scores["any", "weak"].precision > 0.9
    fooled = [Trial(trials[0].rules, corpus[50:75], corpus[:25], ())]
    chance = held_out_scores(annotator, fooled, "controls")[0]
    assert (chance.auc.estimate, chance.recall) == (0.5, 0.0)


def test_auc_counts_pairs() -> None:
    assert auc([3, 1, 1], [1, 0]) == pytest.approx((2 + 1.5 + 1.5) / 6)


def test_matched_pseudo_keys_end_in_tokens_as_rare(corpus: list[Prefix]) -> None:
    pseudo = PseudoKeys(corpus, seed=0)
    count = Counter(prefix.last for prefix in corpus)
    rare = sorted(corpus, key=lambda p: count[p.last])[:25]
    found = pseudo.of_matching_frequency(2, rare).shown
    assert len(found) == 25 == len({p.sentence for p in found})
    assert max(count[p.last] for p in found) < sum(count[p.last] for p in corpus) / len(corpus)


def test_a_matched_pseudo_key_can_show_a_false_pattern_of_last_words(corpus: list[Prefix]) -> None:
    """A rule that takes any three equal endings for a pattern is caught by matched keys."""
    pseudo = PseudoKeys(corpus, seed=0)
    count = Counter(prefix.last for prefix in corpus)
    common = sorted(corpus, key=lambda p: -count[p.last])[:25]
    keys = [pseudo.of_matching_frequency(1, common).shown for _ in range(20)]
    thrice = [max(sum(p.last == q.last for q in shown) for p in shown) >= 3 for shown in keys]
    assert sum(thrice) >= 10
    background = Background.of(corpus)
    caught = [
        any(f.feature.kind == "last word" for f in shared_features(k, background)) for k in keys
    ]
    assert sum(caught) <= 4  # the annotator's own rule is not that lax


def test_length_matched_pseudo_keys_have_the_lengths_of_the_triggers(corpus: list[Prefix]) -> None:
    triggers = [prefix.cut(1 + at % 7) for at, prefix in enumerate(corpus[:25])]
    found = PseudoKeys(corpus, seed=0).of_matching_length(1, triggers)
    assert found.kind == "length"
    assert len({prefix.sentence for prefix in found.shown}) == 25
    sizes = sorted(len(prefix.ids) for prefix in found.shown)
    assert sizes[0] >= 1
    assert sizes[-1] <= 7
    assert abs(sum(sizes) - sum(len(prefix.ids) for prefix in triggers)) <= 25


def test_keys_of_one_hard_kind_set_the_nearness(corpus: list[Prefix]) -> None:
    """Calibrated on easy keys alone, a third kind that lies near together has clusters."""
    draw = random.Random(9)
    background, pseudo = Background.of(corpus), PseudoKeys(corpus, seed=0)
    easy = [control_key(pseudo.random(1).shown) for _ in range(60)]
    war = prefixes([about(draw, WAR) for _ in range(400)], 50_000)
    hard = [control_key(draw.sample(war, 12) + list(easy[n][0][:20])) for n in range(60)]
    lax = ClusterFinder.calibrate(embedding, background, corpus, {"random": easy})
    both = ClusterFinder.calibrate(embedding, background, corpus, {"random": easy, "hard": hard})
    fresh = [draw.sample(war, 12) + list(pseudo.random(1).shown[:13]) for _ in range(30)]

    def share(found: ClusterFinder) -> float:
        return sum(bool(found.clusters(*control_key(shown))) for shown in fresh) / len(fresh)

    assert share(lax) > 0.8
    assert share(both) < 0.3


@pytest.mark.parametrize("words_left", [0, 1, 2])
def test_prefixes_with_too_few_words_are_never_a_cluster(
    corpus: list[Prefix], words_left: int
) -> None:
    """Controls that lose nearly all their words say nothing about how near is near."""

    def all_but_few(prefix: Prefix) -> frozenset[int]:
        return frozenset(range(len(prefix.words))) - {*content_words(prefix)[:words_left]}

    background, pseudo = Background.of(corpus), PseudoKeys(corpus, seed=0)
    keys = [pseudo.random(1).shown for _ in range(60)]
    bare = [(key, [all_but_few(prefix) for prefix in key]) for key in keys]
    full = [control_key(key) for key in keys]
    few = ClusterFinder.calibrate(embedding, background, corpus, {"random": [*full[:2], *bare]})
    half = ClusterFinder.calibrate(
        embedding, background, corpus, {"random": full[:30] + bare[30:], "bare": bare}
    )
    none = ClusterFinder.calibrate(embedding, background, corpus, {"random": bare, "bare": bare})
    fresh = [control_key(pseudo.random(1).shown) for _ in range(30)]
    for found in (few, half, none):
        assert min(found.nearness.values()) > 0
        assert not found.clusters(*bare[5])
        assert sum(bool(found.clusters(*key)) for key in fresh) <= 12
    assert not any(found.clusters(*key) for found in (few, none) for key in fresh)


def pattern(kind: str, *ranks: int, key: Address = KEY) -> Pattern:
    return Pattern(key, "some words", kind, ranks, "ann")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pattern("shallow", 1, 2),
        lambda: pattern("shallow", 1, 2, 2),
        lambda: pattern("deep", 1, 2, 3),
        lambda: Pattern(KEY, " ", "shallow", (1, 2, 3), "ann"),
    ],
)
def test_what_is_no_pattern_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match="pattern|class"):
        make()  # type: ignore[operator]


def test_fig_2_counts_triggers_and_crosses_where_semantic_leads_for_good() -> None:
    keys = []
    for layer, kinds in enumerate(["shallow", "semantic", "shallow", "semantic", "semantic"], 1):
        for index in range(3):
            key = Address(layer, index)
            found = (pattern(kinds, 1, 2, 3, key=key), pattern("shallow", 3, 4, 5, key=key))
            keys.append(KeyPatterns(key, 10, found))
    keys.append(KeyPatterns(Address(5, 3), 0, ()))  # dead: left out
    keys.append(KeyPatterns(Address(1, 3), 10, ()))
    result = summarise_patterns("ann", keys)
    assert result.crossover == 4  # a trigger of both kinds has a meaning
    first, second = result.layers[:2]
    assert {name: share.estimate for name, share in second.shares.items()} == pytest.approx(
        {"shallow": 0.2, "shallow + semantic": 0.1, "semantic": 0.2, "not covered": 0.5}
    )
    assert first.with_pattern.estimate == 0.75
    assert first.patterns_per_key.estimate == 1.5
    assert first.covered.estimate == pytest.approx(3 * 5 / 40)
    assert first.covered.low < first.covered.estimate < first.covered.high
    assert (result.overall.keys, result.overall.triggers) == (16, 160)
    for layer in result.layers:
        assert math.isclose(sum(share.estimate for share in layer.shares.values()), 1)


@pytest.mark.parametrize(
    ("leads", "expected"), [("fft", 3), ("ftt", 2), ("ttt", 1), ("tff", None), ("tft", 3)]
)
def test_the_crossover_is_the_first_layer_from_which_semantic_leads(
    leads: str, expected: int | None
) -> None:
    keys = [
        KeyPatterns(
            Address(layer, 0),
            5,
            (pattern("semantic" if lead == "t" else "shallow", 1, 2, 3, key=Address(layer, 0)),),
        )
        for layer, lead in enumerate(leads, 1)
    ]
    assert summarise_patterns("ann", keys).crossover == expected


def test_several_words_of_one_idea_are_a_pattern_and_one_word_is_not(
    corpus: list[Prefix],
) -> None:
    """A word of war each, never the same three times; it stays with a shared last word."""
    draw = random.Random(5)
    every = [*PLAIN, *WAR, *NEWS]
    own = torch.eye(len(every) + 2)
    vectors = {
        word: own[at] + 2 * (own[-1] * (word in WAR) + own[-2] * (word in NEWS))
        for at, word in enumerate(every)
    }
    pseudo = PseudoKeys(corpus, seed=0)
    keys = [pseudo.random(1).shown for _ in range(150)]
    fields = WordFields.calibrate(vectors, corpus, {"random": keys})
    found = RuleAnnotator(Background.of(corpus), None, fields)
    triggers = [[word, *filler(draw), "press"] for word in WAR] + [filler(draw) for _ in range(11)]
    shallow, semantic = found.rules(KEY, prefixes(triggers, 10_000))
    assert (shallow.pattern.kind, shallow.pattern.ranks) == ("shallow", tuple(range(1, 15)))
    assert (semantic.pattern.kind, semantic.pattern.ranks) == ("semantic", tuple(range(1, 15)))
    assert set(semantic.pattern.description.removeprefix("about: ").split(", ")) <= set(WAR)
    unseen = prefixes([["missile", *filler(draw)], filler(draw)], 20_000)
    assert found.scores([semantic], unseen) == [[0.0, -1.0]]
    one_word = [["missile", *filler(draw)] for _ in range(14)]
    assert fields.shared(prefixes(one_word, 30_000)) == []
    fresh = [pseudo.random(2).shown for _ in range(100)]
    assert sum(bool(fields.shared(shown)) for shown in fresh) <= 6
