"""A corpus of two topics among filler, and a rule annotator that was set on it."""

from __future__ import annotations

import random

import pytest

from ffmem.analyses.patterns.prefixes import Prefix, PseudoKeys
from ffmem.analyses.patterns.rule_annotator import RuleAnnotator
from ffmem.analyses.patterns.semantic_patterns import TopicFinder
from ffmem.analyses.patterns.surface_patterns import Background
from tests.analyses.planted import NEWS, WAR, about, embedding, filler, prefixes


@pytest.fixture(scope="session")
def corpus() -> list[Prefix]:
    draw = random.Random(1)
    stretches = [
        about(draw, draw.choice((WAR, NEWS))) if draw.random() < 0.1 else filler(draw)
        for _ in range(1200)
    ]
    return prefixes(stretches)


@pytest.fixture(scope="session")
def annotator(corpus: list[Prefix]) -> RuleAnnotator:
    background = Background.of(corpus)
    pseudo = PseudoKeys(corpus, seed=0)
    keys = [pseudo.random(1).shown for _ in range(150)]
    return RuleAnnotator(
        background, TopicFinder.calibrate(embedding, background, corpus, {"random": keys})
    )
