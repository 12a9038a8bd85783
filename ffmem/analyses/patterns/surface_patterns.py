"""Surface features of a prefix (its end, words near it), and patterns that share them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from ffmem.analyses.inputs.english import is_content, stem, word_classes
from ffmem.analyses.patterns.prefixes import Prefix

NEAR_END = 8  # words from the end that count as near it
# The more specific a kind is, the rather it is taken among patterns of like cover.
SPECIFIC = {
    "last 3": 8,
    "last 2": 7,
    "last word": 6,
    "last token": 5,
    "stem": 4,
    "near 2": 3,
    "class": 1,
    "piece": 0,
}
PIECE_SENTENCES = {
    "first": "ends with the first piece of a word",
    "later": "ends with a later piece of a word",
}
CLASS_SENTENCES = {
    "year": "ends with a year",
    "number": "ends with a number",
    "month": "ends with a month",
    "quotation": "inside a quotation",
    "bracket": "inside a bracket",
}


@dataclass(frozen=True)
class Feature:
    """Something on the surface that several prefixes can share."""

    kind: str
    value: tuple[str, ...]

    @property
    def description(self) -> str:
        """The feature in words."""
        text = " ".join(self.value)
        match self.kind:
            case "class":
                return CLASS_SENTENCES[text]
            case "piece":
                return PIECE_SENTENCES[text]
            case "stem":
                return f"ends with a form of ‘{text}-’"
            case "last token":
                return f"ends with the token ‘{text}’"
            case "near 2":
                return f"‘{text}’ near the end"
            case _:
                return f"ends with ‘{text}’"


@lru_cache(maxsize=4096)  # the pool that control keys are drawn from, many times over
def features(prefix: Prefix) -> Mapping[Feature, frozenset[int]]:
    """Every feature of a prefix, with the words (by number) that make it."""
    words = [word for word, _, _ in prefix.words]
    if not words:
        return {}
    low = [word.lower() for word in words]
    end = len(words) - 1
    found: dict[Feature, frozenset[int]] = {Feature("last word", (low[-1],)): frozenset({end})}
    for size in (2, 3):
        if len(low) >= size:
            span = frozenset(range(len(low) - size, len(low)))
            found[Feature(f"last {size}", tuple(low[-size:]))] = span
    token = prefix.last.strip()
    if token and token.lower() != low[-1]:
        found[Feature("last token", (token.lower(),))] = frozenset({end})
    if is_content(words[-1]):
        found[Feature("stem", (stem(words[-1]),))] = frozenset({end})
    found |= _near(low)
    classes = word_classes(words[-1]) + _open_marks(prefix.text)
    for name in classes:
        found[Feature("class", (name,))] = frozenset({end})
    if prefix.continues or prefix.unfinished:
        piece = "later" if prefix.continues else "first"
        found[Feature("piece", (piece,))] = frozenset({end})
    return found


def _near(low: list[str]) -> dict[Feature, frozenset[int]]:
    """Pairs of words close to the end but not at it, of which one can carry a topic."""
    end, begin = len(low) - 1, max(0, len(low) - NEAR_END)
    found: dict[Feature, frozenset[int]] = {}
    for one, other in pairwise(range(begin, end)):
        if is_content(low[one]) or is_content(low[other]):
            found[Feature("near 2", (low[one], low[other]))] = frozenset({one, other})
    return found


def _open_marks(text: str) -> list[str]:
    found = ["bracket"] if text.count("(") > text.count(")") else []
    if text.count('"') % 2 or text.count("“") > text.count("”"):
        found.append("quotation")
    return found


LEAST = 3  # triggers that make a pattern
MOST_OF_THEM = 0.6  # of the prefixes, that make pieces of words a pattern
OVERLAP = 0.8  # a pattern this much inside another says nothing new
LEVEL = 0.01  # chance of one false pattern or more on a key without any


@dataclass(frozen=True)
class Background:
    """How common features, and words anywhere, are among random prefixes of the corpus.

    Pieces of words are commoner among the triggers of any key than in the corpus. There the larger
    share counts, `pieces`.
    """

    prefixes: int
    features: Counter[Feature]
    words: Counter[str]  # prefixes that hold a content word
    pieces: Mapping[Feature, float] = field(default_factory=dict)

    @classmethod
    def of(cls, prefixes: Iterable[Prefix], triggers: Sequence[Prefix] = ()) -> Background:
        """Count over prefixes that stand for the corpus, and over triggers of many keys."""
        total, seen, words = 0, Counter[Feature](), Counter[str]()
        for prefix in prefixes:
            total += 1
            seen.update(features(prefix).keys())
            words.update({word.lower() for word, _, _ in prefix.words if is_content(word)})
        of_keys = Counter(one for own in triggers for one in features(own) if one.kind == "piece")
        return cls(total, seen, words, {one: n / len(triggers) for one, n in of_keys.items()})

    def rarity(self, word: str) -> float:
        """-log of the share of random prefixes that hold a word: what it weighs in a mean."""
        return -math.log((self.words[word.lower()] + 1) / (self.prefixes + 1))

    def share(self, feature: Feature) -> float:
        """The share of random prefixes that have it, never 0: one more is counted."""
        share = (self.features[feature] + 1) / (self.prefixes + 1)
        return max(share, self.pieces.get(feature, 0.0))


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

    A feature counts if at least three prefixes have it (of a piece of a word: most) and if, by an
    exact binomial test against the background, so many would have it by chance less often than
    `level` over the number of features tried. Among patterns that cover nearly as much (four
    fifths) as the widest one, the most specific is taken first; one that lies nearly inside a
    pattern already taken is dropped.
    """
    having: dict[Feature, set[int]] = {}
    for rank, prefix in enumerate(prefixes, 1):
        for feature in features(prefix):
            having.setdefault(feature, set()).add(rank)
    left = [
        SharedFeature(feature, tuple(sorted(ranks)), chance)
        for feature, ranks in having.items()
        if len(ranks) >= max(LEAST, MOST_OF_THEM * len(prefixes) * (feature.kind == "piece"))
        and (
            chance := binomial_chance(len(ranks), len(prefixes), background.share(feature))
            * len(having)
        )
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
def binomial_chance(successes: int, trials: int, share: float) -> float:
    """The exact binomial chance of at least this many successes."""
    return math.fsum(
        math.comb(trials, k) * share**k * (1 - share) ** (trials - k)
        for k in range(successes, trials + 1)
    )
