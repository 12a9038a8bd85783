"""Embeddings of prefixes: by the scanned text alone, by the model's states, by another model.

The first is the default, because it knows nothing of the model whose keys are judged with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.inputs.english import is_content
from ffmem.errors import ModelError
from ffmem.memories.recording import record_forward, stop_after
from ffmem.models.language_model import LanguageModel
from ffmem.patterns.clusters import Embedding, content_words
from ffmem.patterns.prefixes import WORD, Prefix
from ffmem.patterns.surface_patterns import Background
from ffmem.store.scan_store import ScanStore

BATCH = 64  # sentences read at once
MOST_SENTENCES = 50_000  # of the scanned text that words are counted in
MOST_WORDS = 4_000  # that have a vector, the commonest first
LEAST_COUNT = 3  # times that a word must be there
WINDOW = 8  # content words to the right that keep a word company
WIDTH = 100  # numbers in a word's vector


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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
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
