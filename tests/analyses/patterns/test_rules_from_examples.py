"""Patterns of people and language models, read from what they tick, on planted triggers."""

from __future__ import annotations

import random

import pytest

from ffmem.address import Address
from ffmem.analyses.patterns.held_out import Trial, held_out_scores
from ffmem.analyses.patterns.prefixes import Prefix
from ffmem.analyses.patterns.record import Pattern
from ffmem.analyses.patterns.rule_annotator import RuleAnnotator, rules_from_examples
from tests.analyses.planted import PLAIN, WAR, about, filler, prefixes

KEY = Address(3, 7)
EVERY = tuple(range(1, 26))


def pattern_of(kind: str, ranks: tuple[int, ...]) -> Pattern:
    return Pattern(KEY, "whatever it is called", kind, ranks, "ana")  # type: ignore[arg-type]


def two_kinds(seed: int) -> list[Prefix]:
    """Ten that end with a word, ten on a topic, five of neither."""
    draw = random.Random(seed)
    stretches = [[*filler(draw), "press"] for _ in range(10)]
    stretches += [about(draw, WAR) for _ in range(10)] + [filler(draw) for _ in range(5)]
    return prefixes(stretches, first=10_000 * seed)


def test_ticks_become_the_planted_word_and_the_planted_topic(
    annotator: RuleAnnotator, corpus: list[Prefix]
) -> None:
    patterns = [
        pattern_of("shallow", tuple(range(1, 11))),
        pattern_of("semantic", tuple(range(11, 21))),
    ]
    word, topic = rules_from_examples(annotator, patterns, two_kinds(3), corpus[-200:])
    assert word.feature is not None
    assert word.feature.description == "ends with ‘press’"
    assert (word.topic, topic.feature) == (None, None)
    by_word, by_topic = annotator.scores([word, topic], two_kinds(4))
    assert [score >= 0 for score in by_word] == [True] * 10 + [False] * 15
    assert sum(score >= 0 for score in by_topic[10:20]) >= 8
    assert sum(score >= 0 for score in by_topic[:10] + by_topic[20:]) <= 2


@pytest.mark.parametrize("kind", ["shallow", "semantic"])
def test_ticks_on_a_real_pattern_predict_and_ticks_at_random_do_not(
    annotator: RuleAnnotator, corpus: list[Prefix], kind: str
) -> None:
    draw = random.Random(9)
    real, wild, trials = [], [], []
    for seed in range(10, 30):
        one = random.Random(seed)
        made = [
            [*filler(one), "press"] if kind == "shallow" else about(one, WAR) for _ in range(50)
        ]
        triggers = prefixes(made, first=10_000 * seed)
        trial = (triggers[25:], draw.sample(corpus[:800], 25), ())
        rules = rules_from_examples(
            annotator, [pattern_of(kind, EVERY)], triggers[:25], corpus[-200:]
        )
        real.append(Trial(rules, *trial))
        noise = draw.sample(corpus[:800], 25)
        ranks = tuple(sorted(draw.sample(EVERY, 5)))
        wild.append(
            Trial(
                rules_from_examples(annotator, [pattern_of(kind, ranks)], noise, corpus[-200:]),
                *trial,
            )
        )
        trials.append(Trial(real[-1].rules, draw.sample(corpus[:800], 25), *trial[1:]))
    found = {
        name: next(row for row in held_out_scores(annotator, each, name) if row.kind == kind)
        for name, each in (("real", real), ("wild", wild), ("another key", trials))
    }
    assert found["real"].auc.estimate > 0.9
    assert found["real"].recall > 0.8
    assert found["wild"].auc.estimate == pytest.approx(0.5, abs=0.15)
    assert found["another key"].auc.low <= 0.5 <= found["another key"].auc.high


def test_a_shallow_pattern_that_no_feature_carries_falls_back_on_meaning(
    annotator: RuleAnnotator, corpus: list[Prefix]
) -> None:
    first = [[*WAR[4 * n : 4 * n + 4], f"end{n}"] for n in range(3)]  # no word twice
    triggers = prefixes(first + [[*PLAIN[n : n + 5], f"end{n}"] for n in range(3, 25)], 90_000)
    (rule,) = rules_from_examples(
        annotator, [pattern_of("shallow", (1, 2, 3))], triggers, corpus[-200:]
    )
    assert rule.feature is None
    (scores,) = annotator.scores([rule], triggers)
    assert [score >= 0 for score in scores] == [True] * 3 + [False] * 22


def test_ticks_without_any_meaning_predict_nothing(
    annotator: RuleAnnotator, corpus: list[Prefix]
) -> None:
    triggers = prefixes([["of", "the", f"x{n}"] for n in range(25)], first=95_000)
    (rule,) = rules_from_examples(
        annotator, [pattern_of("semantic", (1, 5, 9))], triggers, corpus[-200:]
    )
    assert (rule.feature, rule.topic) == (None, None)
    assert annotator.scores([rule], corpus[:3]) == [[-1.0, -1.0, -1.0]]
