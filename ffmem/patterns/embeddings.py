"""Embeddings of prefixes, and the semantic patterns that are found by them.

By the scanned text alone, by the model's states, or by another model; the first is the default,
because it knows nothing of the model whose keys are judged with it. An embedding gives each prefix
a vector without the words of its shallow patterns. A semantic pattern is a cluster: a trigger and
all that lie within a cosine of it, close in meaning once what they share on top is taken away. How
near they must lie depends on how many they are, and is set on pseudo-keys of random prefixes, so
that few of those have any cluster.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.inputs.english import is_content
from ffmem.errors import ModelError
from ffmem.memories.recording import record_forward, stop_after
from ffmem.models.language_model import LanguageModel
from ffmem.models.trace import torch_seed
from ffmem.patterns.prefixes import WORD, Prefix
from ffmem.patterns.surface_patterns import Background
from ffmem.store.scan_store import ScanStore

# Prefixes, and for each the words (by number) to leave out -> [prefix, width].
Embedding = Callable[[Sequence[Prefix], Sequence[frozenset[int]]], Tensor]
ControlKey = tuple[Sequence[Prefix], Sequence[frozenset[int]]]  # the same of one control key
CLUSTER_SIZES = (3, 5, 8)  # a cluster of many may be wider than one of few
CLUSTER_LEVEL = 0.03  # share of random keys that may have a cluster of any size
SAME = 0.999  # cosine of prefixes that say the same
NEVER = 2.0  # a cosine that nothing has
FEWEST_ABLE = 20  # control keys of a kind with words enough for a cluster
NO_WORDS: frozenset[int] = frozenset()
BATCH = 64  # sentences read at once
MOST_SENTENCES = 50_000  # of the scanned text that words are counted in
MOST_WORDS = 4_000  # that have a vector, the commonest first
LEAST_COUNT = 3  # times that a word must be there
WINDOW = 8  # content words to the right that keep a word company
WIDTH = 100  # numbers in a word's vector


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
        """Count over the sentences of the scan's random samples."""
        rows = store.slots(slice(None), "sample").distinct_sentences()
        rows = np.random.default_rng(6).permutation(rows)[:MOST_SENTENCES]
        return cls((store.sentences.sentence(int(row)) for row in rows), background)

    def __call__(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        """[prefix, width]."""
        return torch.stack([self._sum(*pair) for pair in zip(prefixes, removed, strict=True)])

    def _sum(self, prefix: Prefix, removed: frozenset[int]) -> Tensor:
        words = (prefix.words[at][0].lower() for at in content_words(prefix, removed))
        known = [word for word in words if word in self.vectors]
        parts = [self.background.rarity(word) * self.vectors[word] for word in known]
        return torch.stack(parts).sum(dim=0) if parts else self._nothing


def word_vectors(texts: Iterable[str]) -> dict[str, Tensor]:
    """A vector for every content word that is common enough."""
    lists = [[word.lower() for word in WORD.findall(text) if is_content(word)] for text in texts]
    counts = Counter(word for words in lists for word in words)
    common = [word for word, times in counts.most_common(MOST_WORDS) if times >= LEAST_COUNT]
    number = {word: at for at, word in enumerate(common)}
    if not common:
        return {}
    ids = np.array([number.get(word, -1) for words in lists for word in words])
    owner = np.repeat(np.arange(len(lists)), [len(words) for words in lists])
    pairs = np.zeros(len(common) ** 2)
    for step in range(1, WINDOW + 1):
        near = (owner[:-step] == owner[step:]) & (ids[:-step] >= 0) & (ids[step:] >= 0)
        places = ids[:-step][near] * len(common) + ids[step:][near]
        pairs += np.bincount(places, minlength=len(pairs))
    table = torch.from_numpy(pairs.reshape(len(common), -1)).float()
    vectors = decompose(mutual_information(table + table.T))
    return dict(zip(common, vectors, strict=True))


def mutual_information(together: Tensor) -> Tensor:
    """Log p(a, b) / p(a) p(b) of counts [word, word], nothing below zero.

    The chance of a context is taken to the power 0.75, so that rare ones do not look informative.
    """
    total = together.sum().clamp(min=1)
    own = together.sum(dim=1, keepdim=True) / total
    context = together.sum(dim=0) ** 0.75
    context = context / context.sum().clamp(min=1)
    expected = (own * context).clamp(min=1e-12)
    return (together / total / expected).clamp(min=1).log()


def decompose(table: Tensor) -> Tensor:
    """The rows of a square table in few dimensions, the same every time."""
    width = min(WIDTH, len(table))
    with torch_seed(0):
        left, sizes, _ = torch.svd_lowrank(table, q=width, niter=4)
    return left * sizes.sqrt()


class WordStates:
    """Mean of the states at content words, rare words counting more, from a middle layer.

    A sentence is read once, as far as any of its prefixes goes, and its states are kept: the model
    is causal, so a word's state does not know what comes after it.
    """

    def __init__(
        self, model: LanguageModel, background: Background, layer: int | None = None
    ) -> None:
        self.model, self.background = model, background
        self.layer = model.layer(layer or (len(model.layers) + 1) // 2)
        self._states: dict[int, Tensor] = {}  # [token, width] by sentence
        self._means: dict[tuple[int, int, frozenset[int]], Tensor] = {}

    def __call__(self, prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        """[prefix, width]."""
        longest: dict[int, Prefix] = {}
        for prefix in prefixes:
            known = self._states.get(prefix.sentence)
            if known is None or len(known) < len(prefix.ids):
                other = longest.get(prefix.sentence)
                if other is None or len(other.ids) < len(prefix.ids):
                    longest[prefix.sentence] = prefix
        order = sorted(longest.values(), key=lambda prefix: len(prefix.ids))
        for start in range(0, len(order), BATCH):
            self._read(order[start : start + BATCH])
        return torch.stack(
            [self._mean_state(*pair) for pair in zip(prefixes, removed, strict=True)]
        )

    def _mean_state(self, prefix: Prefix, removed: frozenset[int]) -> Tensor:
        """The mean, worked out once: random prefixes come up again and again."""
        place = (prefix.sentence, len(prefix.ids), removed)
        if place not in self._means:
            self._means[place] = self._mean(prefix, removed)
        return self._means[place]

    @torch.no_grad()
    def _read(self, batch: Sequence[Prefix]) -> None:
        bos = [] if self.model.bos is None else [self.model.bos]
        width = max(len(prefix.ids) for prefix in batch) + len(bos)
        tokens = torch.zeros(len(batch), width, dtype=torch.long)
        for row, prefix in enumerate(batch):
            tokens[row, : len(bos) + len(prefix.ids)] = torch.tensor([*bos, *prefix.ids])
        keep = record_forward([self.layer], "o", lambda state: state.clone())
        with keep as (reading,), stop_after(self.layer):
            self.model.run_blocks(tokens.to(self.model.device))
        states = reading.o.reshape(*tokens.shape, -1).float().cpu()
        for prefix, state in zip(batch, states, strict=True):
            self._states[prefix.sentence] = state[len(bos) : len(bos) + len(prefix.ids)].clone()

    def _mean(self, prefix: Prefix, removed: frozenset[int]) -> Tensor:
        states = self._states[prefix.sentence]
        total = torch.zeros(states.shape[1])
        for at in content_words(prefix, removed):
            word, start, end = prefix.words[at]
            first = next(i for i, stop in enumerate(prefix.ends) if stop > start)
            last = next(i for i, stop in enumerate(prefix.ends) if stop >= end)
            total += self.background.rarity(word) * states[first : last + 1].mean(dim=0)
        return total


def sentence_embedding(name: str) -> Embedding:
    """An embedding by a sentence-transformers model: the text without the words to leave out."""
    try:
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(name)
    except (ImportError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"the embedding {name} cannot be loaded ({reason}); install sentence-transformers and "
            "give a model's name or folder"
        ) from None
    known: dict[str, Tensor] = {}

    def embed(prefixes: Sequence[Prefix], removed: Sequence[frozenset[int]]) -> Tensor:
        texts = [
            " ".join(word for at, (word, _, _) in enumerate(prefix.words) if at not in gone)
            for prefix, gone in zip(prefixes, removed, strict=True)
        ]
        new = sorted({text for text in texts if text not in known})
        if new:
            vectors = torch.as_tensor(encoder.encode(new)).float()
            known.update(zip(new, vectors, strict=True))
        return torch.stack([known[text] for text in texts])

    return embed
