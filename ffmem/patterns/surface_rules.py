"""Shallow patterns by rule: what a key's triggers share on the surface beyond all chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ffmem.analyses.english import is_content
from ffmem.patterns.prefixes import Prefix
from ffmem.patterns.surface_features import SPECIFIC, Feature, features

LEAST = 3  # triggers that make a pattern
OVERLAP = 0.8  # a pattern this much inside another says nothing new
LEVEL = 0.01  # chance of one false pattern or more on a key without any


@dataclass(frozen=True)
class Background:
    """How common features, and words anywhere, are among random prefixes of the corpus."""

    prefixes: int
    features: Counter[Feature]
    words: Counter[str]  # prefixes that hold a content word

    @classmethod
    def of(cls, prefixes: Iterable[Prefix]) -> Background:
        """Count over prefixes that stand for the corpus."""
        total, seen, words = 0, Counter[Feature](), Counter[str]()
        for prefix in prefixes:
            total += 1
            seen.update(features(prefix).keys())
            words.update({word.lower() for word, _, _ in prefix.words if is_content(word)})
        return cls(total, seen, words)

    def share(self, feature: Feature) -> float:
        """The share of random prefixes that have it, never 0: one more is counted."""
        return (self.features[feature] + 1) / (self.prefixes + 1)


@dataclass(frozen=True)
class SharedFeature:
    """A feature, the ranks (from 1) of the triggers that have it, and its corrected p-value."""

    feature: Feature
    ranks: tuple[int, ...]
    chance: float


def shared_features(
    prefixes: Sequence[Prefix], background: Background, level: float = LEVEL
) -> list[SharedFeature]:
    """The shallow patterns among some prefixes, the widest first.

    A feature counts if at least three prefixes have it and if, by an exact binomial test against
    the background, so many would have it by chance less often than `level` over the number of
    features tried. Among patterns that cover nearly as much (four fifths) as the widest one, the
    most specific is taken first; one that lies nearly inside a pattern already taken is dropped.
    """
    having: dict[Feature, set[int]] = {}
    for rank, prefix in enumerate(prefixes, 1):
        for feature in features(prefix):
            having.setdefault(feature, set()).add(rank)
    left = [
        SharedFeature(feature, tuple(sorted(ranks)), chance)
        for feature, ranks in having.items()
        if len(ranks) >= LEAST
        and (chance := _chance(len(ranks), len(prefixes), background.share(feature)) * len(having))
        < level
    ]
    taken: list[SharedFeature] = []
    while left:
        widest = max(len(found.ranks) for found in left)
        best = min(
            (found for found in left if len(found.ranks) >= OVERLAP * widest), key=_preference
        )
        taken.append(best)
        left = [found for found in left if not inside(found.ranks, best.ranks)]
    return taken


def _preference(found: SharedFeature) -> tuple[int, int, float, tuple[str, ...]]:
    """The most specific first, then the widest, then the least likely."""
    feature = found.feature
    return -SPECIFIC[feature.kind], -len(found.ranks), found.chance, feature.value


def inside(ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Whether nearly all of the first are among the second."""
    return len(set(ranks) & set(others)) >= OVERLAP * len(ranks)


@lru_cache(maxsize=65_536)
def _chance(successes: int, trials: int, share: float) -> float:
    """The exact binomial chance of at least so many successes."""
    return math.fsum(
        math.comb(trials, k) * share**k * (1 - share) ** (trials - k)
        for k in range(successes, trials + 1)
    )
