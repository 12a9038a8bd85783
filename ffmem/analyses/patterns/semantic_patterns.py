"""Semantic patterns, found by the scanned text alone: nothing is known of the model judged.

There are two. A *field* is a word of a trigger and all words that keep its company in the text: a
pattern where more triggers hold any of them than chance has it, and hold several; one shared word
alone is shallow. A *cluster* is a trigger and all that lie within a cosine of it in an embedding,
close in meaning once the words of shallow patterns are taken away. How unlikely, and how near, is
set on control keys, so that few of those have either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, permutations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.analyses.inputs.english import is_content
from ffmem.analyses.inputs.word_vectors import word_vectors
from ffmem.analyses.patterns.prefixes import Prefix
from ffmem.analyses.patterns.record import MIN_TRIGGERS
from ffmem.analyses.patterns.surface_patterns import Background, binomial_chance, inside
from ffmem.store.scan_store import ScanStore

# Prefixes, and for each the words (by number) to leave out -> [prefix, width].
Embedding = Callable[[Sequence[Prefix], Sequence[frozenset[int]]], Tensor]
ControlKey = tuple[Sequence[Prefix], Sequence[frozenset[int]]]  # the same of one control key
CLUSTER_SIZES = (3, 5, 8)  # a cluster of many may be wider than one of few
CLUSTER_LEVEL = 0.01  # share of random keys that may have a cluster of any size
SAME = 0.999  # cosine of prefixes that say the same
NEVER = 2.0  # a cosine that nothing has
NEAR = (0.45, 0.6)  # cosines from which on a word is of a field: a wide one and a narrow one
FIELD_LEVEL = 0.02  # of control keys of a kind that may have a field
MOST_CHANCE = 0.01  # on one key, however few controls have a field
LEAST_WORDS = 2  # of a field, among the triggers that have it
FEWEST_ABLE = 20  # control keys of a kind with words enough for a cluster
NO_WORDS: frozenset[int] = frozenset()
MOST_SENTENCES = 50_000  # of the scanned text that words are counted in


def content_words(prefix: Prefix, removed: frozenset[int] = NO_WORDS) -> list[int]:
    """The words of a prefix, by number, that can carry a topic and are not removed."""
    return [
        at for at, (word, _, _) in enumerate(prefix.words) if at not in removed and is_content(word)
    ]


@dataclass(frozen=True)
class TriggerCluster:
    """Triggers (ranks from 1) around one of them, and how near they are to it."""

    centre: Tensor = field(repr=False)
    nearness: float  # the cosine that counts as near
    ranks: tuple[int, ...]
    description: str


@dataclass(frozen=True)
class ClusterFinder:
    """An embedding made comparable over a corpus, and the cosines that mean something in it."""

    embedding: Embedding = field(repr=False)
    middle: Tensor = field(repr=False)  # [width], mean over random prefixes
    scale: Tensor = field(repr=False)  # [width], their standard deviation
    nearness: dict[int, float]  # by the least size of a cluster
    background: Background = field(repr=False)

    @classmethod
    def calibrate(
        cls,
        embedding: Embedding,
        background: Background,
        pool: Sequence[Prefix],
        keys: Mapping[str, Sequence[ControlKey]],
    ) -> ClusterFinder:
        """Set the nearness so that of no kind of control keys more than CLUSTER_LEVEL cluster.

        The level is shared equally by the sizes of clusters; the kind of keys that lies nearest
        together decides. Only keys with enough words left for a cluster of a size are counted: the
        others could not have one however near is near. Where these are too few, nothing is near.
        """
        raw = embedding(pool, [NO_WORDS] * len(pool))
        scale = raw.std(dim=0).clamp(min=1e-6)
        loose = cls(embedding, raw.mean(dim=0), scale, {}, background)
        cosines = [[loose.cosines(*key) for key in controls] for controls in keys.values()]
        nearness = {size: _bar(cosines, size) for size in CLUSTER_SIZES}
        return cls(embedding, raw.mean(dim=0), scale, nearness, background)

    def vectors(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        """[prefix, width] of length 1; 0 where fewer than three content words are left."""
        raw = (self.embedding(prefixes, removed) - self.middle) / self.scale
        enough = torch.tensor(
            [
                len({prefix.words[at][0].lower() for at in content_words(prefix, gone)}) >= 3
                for prefix, gone in zip(prefixes, removed, strict=True)
            ]
        )
        return torch.nn.functional.normalize(raw, dim=1) * enough[:, None]

    def cosines(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        """[prefix, prefix]; -1 between prefixes of the same words, which say nothing twice.

        So do those that an embedding cannot tell apart, and those with too few words say nothing.
        """
        vectors = self.vectors(prefixes, removed)
        near = vectors @ vectors.T
        silent = ~vectors.any(dim=1)
        near[silent], near[:, silent] = -1, -1
        near[(near > SAME) & ~torch.eye(len(near), dtype=torch.bool)] = -1
        texts = [
            tuple(prefix.words[at][0].lower() for at in content_words(prefix, gone))
            for prefix, gone in zip(prefixes, removed, strict=True)
        ]
        places: dict[tuple[str, ...], list[int]] = {}
        for at, text in enumerate(texts):
            places.setdefault(text, []).append(at)
        for one, other in chain.from_iterable(permutations(same, 2) for same in places.values()):
            near[one, other] = -1
        return near

    def clusters(
        self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]
    ) -> list[TriggerCluster]:
        """The semantic patterns among some prefixes, the largest first; they share no prefix."""
        if len(prefixes) < min(CLUSTER_SIZES):
            return []
        near, vectors = self.cosines(prefixes, removed), self.vectors(prefixes, removed)
        taken: list[TriggerCluster] = []
        while True:
            least, centre, ranks = self._largest(near)
            if not ranks:
                return taken
            words = self._label([(prefixes[rank - 1], removed[rank - 1]) for rank in ranks])
            taken.append(TriggerCluster(vectors[centre], least, ranks, words))
            gone = [rank - 1 for rank in ranks]
            near[gone], near[:, gone] = -1, -1

    def _largest(self, near: Tensor) -> tuple[float, int, tuple[int, ...]]:
        """The largest cluster left, the tightest of equals, as nearness, centre and ranks."""
        best: tuple[float, int, tuple[int, ...]] = (0.0, 0, ())
        for size, least in self.nearness.items():
            for centre, row in enumerate(near):
                ranks = tuple(int(at) + 1 for at in (row >= least).nonzero().flatten())
                wider = (len(ranks), least) > (len(best[2]), best[0])
                if len(ranks) >= size and centre + 1 in ranks and wider:
                    best = (least, centre, ranks)
        return best

    def _label(self, members: Sequence[tuple[Prefix, frozenset[int]]]) -> str:
        """The three words that the members hold most beyond what is common."""
        held = Counter[str]()
        for prefix, gone in members:
            held.update({prefix.words[at][0].lower() for at in content_words(prefix, gone)})
        total, words = self.background.prefixes, self.background.words
        often = [word for word, times in held.items() if times >= 2] or list(held)

        def pull(word: str) -> float:
            share = held[word] / len(members)
            return share * math.log(share * (total + 1) / (words[word] + 1))

        return "about: " + ", ".join(sorted(often, key=lambda word: (-pull(word), word))[:3])


def _bar(kinds: Sequence[Sequence[Tensor]], size: int) -> float:
    """The cosine that few enough control keys of any kind reach with a cluster of this size."""
    tightest = [torch.tensor([_tightest(near, size) for near in cosines]) for cosines in kinds]
    able = [found[found > -1] for found in tightest]
    if max(map(len, able), default=0) < FEWEST_ABLE:
        return NEVER
    level = CLUSTER_LEVEL / len(CLUSTER_SIZES)
    return max(float(found.quantile(1 - level)) for found in able if len(found))


def _tightest(near: Tensor, size: int) -> float:
    """The cosine at which some prefix first has `size - 1` others near it."""
    if len(near) < size:
        return -1.0
    others = near.clone().fill_diagonal_(-2)
    return float(others.topk(size - 1, dim=1).values[:, -1].max())


class WordContexts:
    """Words by the company they keep in the scanned text; no language model has a part in it.

    How much more often two content words stand near each other than chance has it (the positive
    pointwise mutual information of a window), brought to a few dimensions by a singular value
    decomposition. A prefix is the sum over its content words, rare words counting more.
    """

    def __init__(self, texts: Iterable[str], background: Background) -> None:
        self.background = background
        self.vectors = word_vectors(texts)
        width = next((len(one) for one in self.vectors.values()), 1)
        self._nothing = torch.zeros(width)

    @classmethod
    def of_scan(cls, store: ScanStore, background: Background) -> WordContexts:
        """Count over the sentences that the scan kept."""
        rows = np.random.default_rng(6).permutation(len(store.sentences))[:MOST_SENTENCES]
        return cls((store.sentences.sentence(int(row)) for row in rows), background)

    def __call__(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        """[prefix, width]."""
        return torch.stack([self._sum(*pair) for pair in zip(prefixes, removed, strict=True)])

    def _sum(self, prefix: Prefix, removed: frozenset[int]) -> Tensor:
        words = (prefix.words[at][0].lower() for at in content_words(prefix, removed))
        known = [word for word in words if word in self.vectors]
        parts = [self.background.rarity(word) * self.vectors[word] for word in known]
        return torch.stack(parts).sum(dim=0) if parts else self._nothing


@dataclass(frozen=True)
class WordField:
    """Words of one idea; a prefix has it that holds any of them."""

    words: frozenset[str]

    def has(self, prefix: Prefix) -> bool:
        """Whether a prefix holds one of its words."""
        return not self.words.isdisjoint(_lower(prefix))


@dataclass(frozen=True)
class SharedField:
    """A field, the ranks (from 1) of the triggers that have it, and its corrected p-value."""

    field: WordField
    ranks: tuple[int, ...]
    chance: float
    description: str


@dataclass(frozen=True)
class WordFields:
    """The words of a text, how near they are, and which random prefixes hold each."""

    words: tuple[str, ...] = field(repr=False)
    near: NDArray[np.float32] = field(repr=False)  # [word, word], cosines
    held: NDArray[np.bool_] = field(repr=False)  # [word, random prefix]
    most_chance: float = MOST_CHANCE

    @classmethod
    def calibrate(
        cls,
        vectors: Mapping[str, Tensor],
        pool: Sequence[Prefix],
        keys: Mapping[str, Sequence[Sequence[Prefix]]],
    ) -> WordFields:
        """Set the chance so that of no kind of control keys more than FIELD_LEVEL have a field."""
        number = {word: at for at, word in enumerate(vectors)}
        rows = torch.stack(list(vectors.values())) if vectors else torch.zeros(0, 1)
        unit = torch.nn.functional.normalize(rows, dim=1)
        held = np.zeros((len(rows), len(pool)), bool)
        for at, prefix in enumerate(pool):
            held[[number[word] for word in _lower(prefix) if word in number], at] = True
        loose = cls(tuple(vectors), (unit @ unit.T).numpy(), held, 1.0)
        found = [[loose._candidates(key) for key in controls] for controls in keys.values()]
        least = [[min((one.chance for one in key), default=1.0) for key in kind] for kind in found]
        bars = [float(np.quantile(chances, FIELD_LEVEL)) for chances in least if chances]
        return cls(loose.words, loose.near, held, min([MOST_CHANCE, *bars]))

    def shared(self, prefixes: Sequence[Prefix]) -> list[SharedField]:
        """The fields that some prefixes share, the widest first; one nearly inside another goes."""
        left = [found for found in self._candidates(prefixes) if found.chance < self.most_chance]
        taken: list[SharedField] = []
        while left:
            best = min(left, key=lambda found: (-len(found.ranks), found.chance, found.description))
            taken.append(best)
            left = [found for found in left if not inside(found.ranks, best.ranks)]
        return taken

    @cached_property
    def _number(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def _candidates(self, prefixes: Sequence[Prefix]) -> list[SharedField]:
        """The fields of each word of theirs, where enough of them hold several of its words."""
        known = [{self._number[w] for w in _lower(one) if w in self._number} for one in prefixes]
        seeds = sorted(set[int]().union(*known))
        pairs = ((seed, least) for seed in seeds for least in NEAR)
        every = (self._field(self.near[seed] >= least, known, len(seeds)) for seed, least in pairs)
        return [found for found in every if found is not None]

    def _field(
        self, members: NDArray[np.bool_], known: Sequence[set[int]], tried: int
    ) -> SharedField | None:
        """One field, if enough prefixes have it; `known` are the words of each, by number."""
        hits = [[number for number in own if members[number]] for own in known]
        ranks = tuple(rank for rank, own in enumerate(hits, 1) if own)
        times = Counter(self.words[number] for own in hits for number in own)
        if len(ranks) < MIN_TRIGGERS or len(times) < LEAST_WORDS:
            return None
        holding = int(self.held[members].any(axis=0).sum())
        chance = binomial_chance(len(ranks), len(known), (holding + 1) / (self.held.shape[1] + 1))
        names = sorted(times, key=lambda word: (-times[word], word))[:3]
        words = frozenset(self.words[number] for number in np.flatnonzero(members))
        return SharedField(WordField(words), ranks, chance * tried, f"about: {', '.join(names)}")


def _lower(prefix: Prefix) -> frozenset[str]:
    return frozenset(word.lower() for word, _, _ in prefix.words)
