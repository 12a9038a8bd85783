"""Semantic patterns: triggers that are close in meaning once what they share on top is taken away.

An embedding gives each prefix a vector without the words of its shallow patterns. A cluster is a
trigger and all that lie within a cosine of it. How near they must lie depends on how many they
are, and is set on prefixes dressed as keys that are not one key's, so that few of those have any
cluster.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations

import torch
from torch import Tensor

from ffmem.analyses.inputs.english import is_content
from ffmem.patterns.prefixes import Prefix
from ffmem.patterns.surface_patterns import Background

# Prefixes, and for each the words (by number) to leave out -> [prefix, width].
Embedding = Callable[[Sequence[Prefix], Sequence[frozenset[int]]], Tensor]
DressedKey = tuple[Sequence[Prefix], Sequence[frozenset[int]]]  # the same of one control key
SIZES = (3, 5, 8)  # a cluster of many may be wider than one of few
LEVEL = 0.03  # share of random keys that may have a cluster of any size
SAME = 0.999  # cosine of prefixes that say the same
NO_WORDS: frozenset[int] = frozenset()


def content_words(prefix: Prefix, removed: frozenset[int] = NO_WORDS) -> list[int]:
    """The words of a prefix, by number, that can carry a topic and are not removed."""
    return [
        at for at, (word, _, _) in enumerate(prefix.words) if at not in removed and is_content(word)
    ]


@dataclass(frozen=True)
class Cluster:
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
        keys: Mapping[str, Sequence[DressedKey]],
    ) -> ClusterFinder:
        """Set the nearness so that of control keys of no kind more than LEVEL have a cluster.

        The level is shared equally by the sizes of clusters; the kind of keys that lies nearest
        together decides.
        """
        raw = embedding(pool, [NO_WORDS] * len(pool))
        scale = raw.std(dim=0).clamp(min=1e-6)
        loose = cls(embedding, raw.mean(dim=0), scale, {}, background)
        nearness = dict.fromkeys(SIZES, -1.0)
        for dressed in keys.values():
            cosines = [loose.cosines(*key) for key in dressed]
            for size in SIZES:
                tightest = torch.tensor([_tightest(near, size) for near in cosines])
                bar = float(tightest.quantile(1 - LEVEL / len(SIZES)))
                nearness[size] = max(nearness[size], bar)
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

        So do those that an embedding cannot tell apart.
        """
        vectors = self.vectors(prefixes, removed)
        near = vectors @ vectors.T
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
    ) -> list[Cluster]:
        """The semantic patterns among some prefixes, the largest first; they share no prefix."""
        if len(prefixes) < min(SIZES):
            return []
        near, vectors = self.cosines(prefixes, removed), self.vectors(prefixes, removed)
        taken: list[Cluster] = []
        while True:
            least, centre, ranks = self._largest(near)
            if not ranks:
                return taken
            words = self._label([(prefixes[rank - 1], removed[rank - 1]) for rank in ranks])
            taken.append(Cluster(vectors[centre], least, ranks, words))
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


def _tightest(near: Tensor, size: int) -> float:
    """The cosine at which some prefix first has `size - 1` others near it."""
    if len(near) < size:
        return -1.0
    others = near.clone().fill_diagonal_(-2)
    return float(others.topk(size - 1, dim=1).values[:, -1].max())
