from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.inputs.english import stem
from ffmem.analyses.patterns.held_out import Trial, auc, held_out_scores
from ffmem.analyses.patterns.measure import summarise_patterns
from ffmem.analyses.patterns.prefixes import Prefix, PseudoKeys
from ffmem.analyses.patterns.record import KeyPatterns, Pattern, trigger_labels
from ffmem.analyses.patterns.rule_annotator import RuleAnnotator
from ffmem.analyses.patterns.semantic_patterns import NO_WORDS, TopicFinder, WordClasses
from ffmem.analyses.patterns.surface_patterns import Background, shared_features
from tests.analyses.planted import (
    NEWS,
    PLAIN,
    WAR,
    about,
    embedding,
    filler,
    prefixes,
)

KEY = Address(3, 7)


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


def test_two_topics_are_patterns_of_their_own(annotator: RuleAnnotator) -> None:
    draw = random.Random(6)
    stretches = [about(draw, WAR) for _ in range(13)] + [about(draw, NEWS) for _ in range(12)]
    found = annotator.patterns(KEY, prefixes(stretches, first=40_000))
    ranks = [p.ranks for p in found if p.kind == "semantic"]
    assert {rank for own in ranks if max(own) <= 13 for rank in own} == set(range(1, 14))
    assert {rank for own in ranks if min(own) > 13 for rank in own} == set(range(14, 26))
    assert all(max(own) <= 13 or min(own) > 13 for own in ranks)


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


def test_keys_of_one_hard_kind_set_the_bar(corpus: list[Prefix]) -> None:
    """Calibrated on easy keys alone, a third kind that lies near together has topics."""
    draw = random.Random(9)
    background, pseudo = Background.of(corpus), PseudoKeys(corpus, seed=0)
    easy = [pseudo.random(1).shown for _ in range(60)]
    war = prefixes([about(draw, WAR) for _ in range(400)], 50_000)
    hard = [draw.sample(war, 12) + list(easy[n][:13]) for n in range(60)]
    lax = TopicFinder.calibrate(embedding, background, corpus, {"random": easy})
    both = TopicFinder.calibrate(embedding, background, corpus, {"random": easy, "hard": hard})
    fresh = [draw.sample(war, 12) + list(pseudo.random(1).shown[:13]) for _ in range(30)]

    def share(found: TopicFinder) -> float:
        return sum(bool(found.topics(shown, [NO_WORDS] * 25)) for shown in fresh) / len(fresh)

    assert both.bar < lax.bar
    assert share(lax) > 0.8
    assert share(both) < 0.3


def test_prefixes_without_content_words_are_no_topic(
    corpus: list[Prefix], annotator: RuleAnnotator
) -> None:
    """What nothing is known of is not near to anything, neither among triggers nor at random."""
    bare = prefixes([["the", "of"]] * 25, 60_000)
    assert annotator.meanings is not None
    assert not annotator.meanings.vectors(bare).any()
    assert annotator.meanings.topics(bare, [NO_WORDS] * 25) == []
    silent = TopicFinder.calibrate(
        embedding, annotator.background, bare * 4, {"random": [bare] * 30}
    )
    assert silent.topics(corpus[:25], [NO_WORDS] * 25) == []


def test_a_topic_is_more_than_a_word_that_its_triggers_share(annotator: RuleAnnotator) -> None:
    """One word of war in otherwise plain triggers is no topic once it is a shallow pattern."""
    assert annotator.meanings is not None
    draw = random.Random(12)
    one_word = prefixes([[*filler(draw), "missile"] for _ in range(25)], 70_000)
    last = [frozenset({len(prefix.words) - 1}) for prefix in one_word]
    by_word = annotator.meanings.topics(one_word, [NO_WORDS] * 25)
    assert max(len(one.ranks) for one in by_word) >= 12
    assert all(len(one.ranks) < 9 for one in annotator.meanings.topics(one_word, last))
    several = prefixes([[*about(draw, WAR), "missile"] for _ in range(25)], 80_000)
    last = [frozenset({len(prefix.words) - 1}) for prefix in several]
    assert max(len(one.ranks) for one in annotator.meanings.topics(several, last)) >= 12


def test_pieces_of_words_are_a_pattern_where_most_triggers_end_in_one() -> None:
    draw = random.Random(14)

    def cut(number: int, pieces: int) -> list[Prefix]:
        """Prefixes of which the first end within a word of their own."""
        found = prefixes([[*filler(draw), f"word{n}"] for n in range(25)], number)
        return [replace(one, unfinished=at < pieces) for at, one in enumerate(found)]

    common = cut(0, 1) + cut(100, 1)
    most, some = cut(200, 20), cut(300, 12)
    text = Background.of(common)
    (found,) = shared_features(most, text)
    assert found.feature.description == "ends with the first piece of a word"
    assert found.ranks == tuple(range(1, 21))
    assert shared_features(some, text) == []
    keys = Background.of(common, triggers=cut(400, 18))  # as many as triggers of any key
    assert shared_features(most, keys) == []


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


def test_last_words_of_one_kind_are_a_pattern_and_one_word_is_not(corpus: list[Prefix]) -> None:
    """Triggers that end in words of war, of which no three are the same."""
    draw = random.Random(5)
    every = [*PLAIN, *WAR, *NEWS]
    own = torch.eye(len(every) + 2)
    vectors = {
        word: own[at] + 2 * (own[-1] * (word in WAR) + own[-2] * (word in NEWS))
        for at, word in enumerate(every)
    }
    pseudo = PseudoKeys(corpus, seed=0)
    keys = [pseudo.random(1).shown for _ in range(150)]
    classes = WordClasses.calibrate(vectors, corpus, {"random": keys})
    found = RuleAnnotator(Background.of(corpus), None, classes)
    triggers = [[*filler(draw), word] for word in WAR] + [
        [*filler(draw), word] for word in PLAIN[:11]
    ]
    (semantic,) = found.rules(KEY, prefixes(triggers, 10_000))
    assert (semantic.pattern.kind, semantic.pattern.ranks) == ("semantic", tuple(range(1, 15)))
    words = semantic.pattern.description.removeprefix("ends with a word like ").split(", ")
    assert set(words) <= set(WAR)
    unseen = prefixes([[*filler(draw), "missile"], ["missile", *PLAIN[:5]]], 20_000)
    assert found.scores([semantic], unseen) == [[0.0, -1.0]]
    for ends in (["missile"] * 14, ["missile"] * 13 + ["troops"]):  # one word is a shallow pattern
        assert classes.shared(prefixes([[*filler(draw), end] for end in ends], 30_000)) == []
    fresh = [pseudo.random(2).shown for _ in range(100)]
    assert sum(bool(classes.shared(shown)) for shown in fresh) <= 6
