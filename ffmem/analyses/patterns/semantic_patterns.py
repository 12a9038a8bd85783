"""Semantic patterns, found by the scanned text alone: nothing is known of the model judged.

There are two. A *topic* is a trigger and all that are nearer to it than nearly all random prefixes,
by the words that they hold. A *word class* is a last word and all that stand in the same places of
the text: countries, feelings, verbs of saying. Either counts where more triggers have it than
chance would give. How unlikely that must be is set on control keys, so that few of them have any.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.inputs.english import is_content
from ffmem.analyses.inputs.word_vectors import word_vectors
from ffmem.analyses.patterns.prefixes import Prefix
from ffmem.analyses.patterns.record import MIN_TRIGGERS
from ffmem.analyses.patterns.surface_patterns import Background, binomial_chance, inside

# Prefixes, and for each the words (by number) to leave out -> [prefix, width].
Embedding = Callable[[Sequence[Prefix], Sequence[frozenset[int]]], Tensor]
NEAREST = 0.05  # share of random prefixes that are as near to a trigger as what is near it
WITHOUT = 0.6  # share of a topic's triggers that are near one without the words of shallow patterns
ALIKE = (0.3, 0.4, 0.5, 0.6)  # cosines from which on last words are of a class, wide to narrow
OTHERS = 2  # triggers of a class, at least, that do not end in its commonest word
LEVEL = 0.01  # share of control keys of a kind that may have a pattern
FURTHER = 0.05  # chance of a further pattern, on one key that has one
NEVER = 2.0  # a cosine that nothing has
NO_WORDS: frozenset[int] = frozenset()


def content_words(prefix: Prefix, removed: frozenset[int] = NO_WORDS) -> list[int]:
    """The words of a prefix, by number, that can carry a topic and are not removed."""
    return [
        at for at, (word, _, _) in enumerate(prefix.words) if at not in removed and is_content(word)
    ]


class Candidate(Protocol):
    """What may be a pattern: the ranks (from 1) of its triggers, and how likely it is by chance."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The triggers that have it."""
        ...

    @property
    def chance(self) -> float:
        """Of so many triggers on a key without it, corrected for what was tried."""
        ...

    @property
    def description(self) -> str:
        """It in words."""
        ...


Found = TypeVar("Found", bound=Candidate)


def _chance_bar(kinds: Iterable[Sequence[Sequence[Candidate]]]) -> float:
    """How unlikely a pattern must be for few control keys of any kind to have one."""
    least = [[min((one.chance for one in key), default=1.0) for key in keys] for keys in kinds]
    return min([FURTHER, *(float(np.quantile(chances, LEVEL)) for chances in least if chances)])


def _unlikely(found: Sequence[Found], bar: float) -> list[Found]:
    """The patterns of a key, the widest first, without those nearly inside another one.

    One below the bar is wanted; a key that has one is no control, and others need be less unlikely.
    """
    if all(one.chance >= bar for one in found):
        return []
    left = [one for one in found if one.chance < FURTHER]
    taken: list[Found] = []
    while left:
        best = min(left, key=lambda one: (-len(one.ranks), one.chance, one.description))
        taken.append(best)
        left = [one for one in left if not inside(one.ranks, best.ranks)]
    return taken


@dataclass(frozen=True)
class Topic:
    """Triggers (ranks from 1) around one of them, and how near they are to it."""

    centre: Tensor = field(repr=False)
    nearness: float  # the cosine that counts as near
    ranks: tuple[int, ...]
    description: str
    chance: float


@dataclass(frozen=True)
class TopicFinder:
    """An embedding made comparable over a corpus, and how near random prefixes are in it."""

    embedding: Embedding = field(repr=False)
    middle: Tensor = field(repr=False)  # [width], mean over random prefixes
    scale: Tensor = field(repr=False)  # [width], their standard deviation
    pool: Tensor = field(repr=False)  # [prefix, width], random prefixes, of length 1
    background: Background = field(repr=False)
    bar: float = FURTHER  # chance below which a key's first topic counts

    @classmethod
    def calibrate(
        cls,
        embedding: Embedding,
        background: Background,
        pool: Sequence[Prefix],
        keys: Mapping[str, Sequence[Sequence[Prefix]]],
    ) -> TopicFinder:
        """Set the bar on control keys, of each kind some."""
        raw = embedding(pool, [NO_WORDS] * len(pool))
        middle, scale = raw.mean(dim=0), raw.std(dim=0).clamp(min=1e-6)
        loose = cls(embedding, middle, scale, _unit(raw, middle, scale), background)
        found = ([loose._candidates(key) for key in controls] for controls in keys.values())
        return replace(loose, bar=_chance_bar(found))

    def vectors(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]] = ()) -> Tensor:
        """[prefix, width] of length 1; 0 where no content word is left."""
        raw = self.embedding(prefixes, removed or [NO_WORDS] * len(prefixes))
        return _unit(raw, self.middle, self.scale)

    def topics(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> list[Topic]:
        """The topics of some prefixes, whose shallow patterns are made by the words `removed`.

        A topic is more than a shared word: without it too most of its triggers are near one of
        them, and those that are near to none are left out.
        """
        found = self._candidates(prefixes)
        if all(one.chance >= self.bar for one in found):
            return []
        _, near = self._near(self.vectors(prefixes, removed))
        rest = [one for topic in found if (one := _without_shared_words(topic, near))]
        return [
            replace(one, description=self._label(prefixes, removed, one.ranks))
            for one in _unlikely(rest, self.bar)
        ]

    def _near(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The cosine that counts as near each prefix, and [prefix, prefix] whether it is."""
        bars, most = torch.full([len(vectors)], NEVER), int(NEAREST * len(self.pool))
        if 0 < most <= int(self.pool.any(dim=1).sum()):
            bars = (vectors @ self.pool.T).topk(most, dim=1).values[:, -1].clamp(min=1e-6)
        return bars, vectors @ vectors.T >= bars[:, None]

    def _candidates(self, prefixes: Sequence[Prefix]) -> list[Topic]:
        """Every prefix with those near it, where they are three and more than by chance."""
        if not prefixes:
            return []
        vectors = self.vectors(prefixes)
        bars, near = self._near(vectors)
        found = []
        for at, (bar, row) in enumerate(zip(bars.tolist(), near, strict=True)):
            ranks = tuple(int(one) + 1 for one in row.nonzero().flatten())
            if len(ranks) < MIN_TRIGGERS:
                continue
            chance = binomial_chance(len(ranks) - 1, len(prefixes) - 1, NEAREST) * len(prefixes)
            found.append(Topic(vectors[at], bar, ranks, str(at), chance))
        return found

    def _label(
        self,
        prefixes: Sequence[Prefix],
        removed: Sequence[frozenset[int]],
        ranks: Sequence[int],
    ) -> str:
        """The three words that the members hold most beyond what is common."""
        held = Counter[str]()
        for rank in ranks:
            prefix, gone = prefixes[rank - 1], removed[rank - 1]
            held.update({prefix.words[at][0].lower() for at in content_words(prefix, gone)})
        total, words = self.background.prefixes, self.background.words
        often = [word for word, times in held.items() if times >= 2] or list(held)

        def pull(word: str) -> float:
            share = held[word] / len(ranks)
            return share * math.log(share * (total + 1) / (words[word] + 1))

        return "about: " + ", ".join(sorted(often, key=lambda word: (-pull(word), word))[:3])


def _unit(raw: Tensor, middle: Tensor, scale: Tensor) -> Tensor:
    """Vectors of length 1 on a common scale; one without any word stays 0."""
    found = torch.nn.functional.normalize((raw - middle) / scale, dim=1)
    return found * raw.any(dim=1)[:, None]


def _without_shared_words(topic: Topic, near: Tensor) -> Topic | None:
    """A topic's triggers that are near others of them without shared words; None where few are."""
    at = [rank - 1 for rank in topic.ranks]
    own = near[at][:, at].fill_diagonal_(False)
    ranks = tuple(
        rank for rank, any_ in zip(topic.ranks, (own | own.T).any(dim=1), strict=True) if any_
    )
    most = 1 + int(own.sum(dim=1).max())
    enough = len(ranks) >= MIN_TRIGGERS and most >= max(MIN_TRIGGERS, WITHOUT * len(at))
    return replace(topic, ranks=ranks) if enough else None


class WordContexts:
    """Prefixes by the words they hold, and words by the company they keep in the scanned text.

    How much more often two content words stand near each other than chance has it (the positive
    pointwise mutual information of a window), brought to a few dimensions by a singular value
    decomposition. A prefix is the sum over its content words, rare words counting more.
    """

    def __init__(self, texts: Iterable[str], background: Background) -> None:
        self.background = background
        self.vectors = word_vectors(texts)
        width = next((len(one) for one in self.vectors.values()), 1)
        self._nothing = torch.zeros(width)

    def __call__(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        """[prefix, width]."""
        return torch.stack([self._sum(*pair) for pair in zip(prefixes, removed, strict=True)])

    def _sum(self, prefix: Prefix, removed: frozenset[int]) -> Tensor:
        words = {prefix.words[at][0].lower() for at in content_words(prefix, removed)}
        known = [word for word in sorted(words) if word in self.vectors]
        parts = [self.background.rarity(word) * self.vectors[word] for word in known]
        return torch.stack(parts).sum(dim=0) if parts else self._nothing


@dataclass(frozen=True)
class WordClass:
    """Words of one kind, and the triggers (ranks from 1) that end in one of them."""

    words: frozenset[str]
    ranks: tuple[int, ...]
    description: str
    chance: float

    def has(self, prefix: Prefix) -> bool:
        """Whether a prefix ends in one of its words."""
        return _last_word(prefix) in self.words


@dataclass(frozen=True)
class WordClasses:
    """The words of a text by the places they stand in, and how often each ends a random prefix."""

    words: tuple[str, ...] = field(repr=False)
    vectors: Tensor = field(repr=False)  # [word, width], of length 1
    ends: Tensor = field(repr=False)  # [word]
    pool: int
    bar: float = FURTHER  # chance below which a key's first class counts

    @classmethod
    def calibrate(
        cls,
        vectors: Mapping[str, Tensor],
        pool: Sequence[Prefix],
        keys: Mapping[str, Sequence[Sequence[Prefix]]],
    ) -> WordClasses:
        """Set the bar on control keys, of each kind some."""
        rows = torch.stack(list(vectors.values())) if vectors else torch.zeros(0, 1)
        times = Counter(_last_word(prefix) for prefix in pool)
        ends = torch.tensor([times[word] for word in vectors])
        unit = torch.nn.functional.normalize(rows, dim=1)
        loose = cls(tuple(vectors), unit, ends, len(pool))
        found = ([loose._candidates(key) for key in controls] for controls in keys.values())
        return replace(loose, bar=_chance_bar(found))

    def shared(self, prefixes: Sequence[Prefix]) -> list[WordClass]:
        """The classes that the last words of some prefixes share."""
        return _unlikely(self._candidates(prefixes), self.bar)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def _candidates(self, prefixes: Sequence[Prefix]) -> list[WordClass]:
        """The words like each last word that can carry a topic, wide and narrow."""
        last = [self._number.get(_last_word(prefix), -1) for prefix in prefixes]
        seeds = sorted({number for number in last if number >= 0})
        if len(seeds) < 2:
            return []
        cosines = self.vectors[seeds] @ self.vectors.T
        pairs = [
            (row >= least, len(seeds))
            for seed, row in zip(seeds, cosines, strict=True)
            if is_content(self.words[seed])
            for least in ALIKE
        ]
        every = (self._word_class(members, last, tried) for members, tried in pairs)
        return [found for found in every if found is not None]

    def _word_class(self, members: Tensor, last: Sequence[int], tried: int) -> WordClass | None:
        """One class, if enough prefixes end in its words; `last` are theirs, by number."""
        ranks = tuple(at for at, one in enumerate(last, 1) if one >= 0 and members[one])
        times = Counter(self.words[last[rank - 1]] for rank in ranks)
        if len(ranks) < MIN_TRIGGERS or len(ranks) - max(times.values()) < OTHERS:
            return None
        share = (int(self.ends[members].sum()) + 1) / (self.pool + 1)
        chance = binomial_chance(len(ranks) - 1, len(last) - 1, min(share, 1.0)) * tried
        names = ", ".join(sorted(times, key=lambda word: (-times[word], word))[:3])
        words = frozenset(self.words[number] for number in members.nonzero().flatten().tolist())
        return WordClass(words, ranks, f"ends with a word like {names}", chance)


def _last_word(prefix: Prefix) -> str:
    return prefix.words[-1][0].lower() if prefix.words else ""
