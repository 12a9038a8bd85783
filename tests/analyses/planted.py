"""Prefixes written by a random hand, with patterns put into some of them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ffmem.analyses.patterns.prefixes import Prefix
from ffmem.analyses.patterns.semantic_patterns import content_words


def words_of(text: str) -> list[str]:
    """A list of words, written as words."""
    return text.split()


PLAIN = words_of("""
    table window garden letter morning shoulder yellow carpet pencil bottle cousin ladder
    blanket mirror corner bucket ribbon hammer feather candle basket saddle button kettle pillow
    velvet marble copper timber gravel meadow valley harbor tunnel bridge engine wagon needle
    thread pocket lantern chimney cellar attic fence orchard barrel anchor whistle trumpet""")
SMALL = words_of("the a of to and in was with for on by from at")
WAR = words_of("""
    aircraft squadron regiment artillery infantry battalion missile brigade soldiers tanks
    bomber fleet navy troops""")
NEWS = words_of("""newspaper reporters headline journalist editor broadcast interview magazine media
    columnist bulletin correspondent""")
TOPICS = (WAR, NEWS)
WIDTH = 8


def filler(draw: random.Random, words: Sequence[str] = PLAIN) -> list[str]:
    """A stretch of words without meaning."""
    return [
        draw.choice(SMALL if draw.random() < 0.4 else words) for _ in range(draw.randint(10, 14))
    ]


def about(draw: random.Random, topic: Sequence[str]) -> list[str]:
    """A stretch that begins with words of a topic, too far from its end to be seen there."""
    return draw.sample(topic, 4) + filler(draw)


def prefixes(stretches: Sequence[Sequence[str]], first: int = 0) -> list[Prefix]:
    """Stretches of words as prefixes of sentences numbered from `first`."""
    return [Prefix.of(" ".join(words), first + at) for at, words in enumerate(stretches)]


@cache
def vector(word: str) -> Tensor:
    """A direction of a word's own, turned towards its topic where it has one."""
    own = torch.randn(WIDTH, generator=torch.Generator().manual_seed(zlib.crc32(word.encode())))
    for number, topic in enumerate(TOPICS):
        if word in topic:
            own[number] += 30
    return own


def embedding(found: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
    """The sum of the vectors of content words."""
    return torch.stack(
        [
            sum(
                (vector(prefix.words[at][0]) for at in content_words(prefix, gone)),
                torch.zeros(WIDTH),
            )
            for prefix, gone in zip(found, removed, strict=True)
        ]
    )
