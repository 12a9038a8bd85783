"""Words by the company they keep in the scanned text; no language model has a part in it.

Words that stand near each other are of one topic (`word_vectors`); words that stand in the same
places are of one kind (`slot_vectors`): countries, feelings, verbs of saying.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.analyses.inputs.english import WORD, is_content
from ffmem.models.blocks.trace import torch_seed

MOST_WORDS = 4_000  # that have a vector, the commonest first
LEAST_COUNT = 3  # times that a word must be there
WINDOW = 8  # content words to the right that keep a word company
PLACES = 2  # on either side of a word that tell its kind
WIDTH = 100  # numbers in a word's vector


def word_vectors(texts: Iterable[str]) -> dict[str, Tensor]:
    """A vector for every content word that is common enough, by the content words near it."""
    lists = [[word.lower() for word in WORD.findall(text) if is_content(word)] for text in texts]
    common, ids, owner = _numbered(lists)
    near = [
        pair for step in range(1, WINDOW + 1) for pair in _both_ways(*_beside(ids, owner, step))
    ]
    return _vectors(common, near, len(common))


def slot_vectors(texts: Iterable[str]) -> dict[str, Tensor]:
    """A vector for every word that is common enough, by the words in each place beside it."""
    common, ids, owner = _numbered([[w.lower() for w in WORD.findall(text)] for text in texts])
    near, size = [], len(common)
    for step in range(1, PLACES + 1):
        word, after = _beside(ids, owner, step)
        near += [(word, after + (2 * step - 2) * size), (after, word + (2 * step - 1) * size)]
    return _vectors(common, near, 2 * PLACES * size)


Words = NDArray[np.int64]  # by number; -1 for those that are too rare


def _numbered(lists: Sequence[Sequence[str]]) -> tuple[list[str], Words, Words]:
    """The words that are common enough, all words by number, and the list that each is from."""
    counts = Counter(word for words in lists for word in words)
    common = [word for word, times in counts.most_common(MOST_WORDS) if times >= LEAST_COUNT]
    number = {word: at for at, word in enumerate(common)}
    ids = np.array([number.get(word, -1) for words in lists for word in words], dtype=np.int64)
    return common, ids, np.repeat(np.arange(len(lists)), [len(words) for words in lists])


def _beside(ids: Words, owner: Words, step: int) -> tuple[Words, Words]:
    """Words and those `step` places after them in the same text."""
    near = (owner[:-step] == owner[step:]) & (ids[:-step] >= 0) & (ids[step:] >= 0)
    return ids[:-step][near], ids[step:][near]


def _both_ways(one: Words, other: Words) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    return (one, other), (other, one)


def _vectors(
    words: Sequence[str], pairs: Sequence[tuple[Words, Words]], contexts: int
) -> dict[str, Tensor]:
    """Vectors from pairs of a word and a context.

    Log p(word, context) / p(word) p(context), nothing below zero, in few dimensions, the same every
    time. The chance of a context is taken to the power 0.75, so that rare ones do not look
    informative.
    """
    if not words:
        return {}
    places = np.concatenate([word * contexts + context for word, context in pairs])
    cells, times = np.unique(places, return_counts=True)
    word, context = cells // contexts, cells % contexts
    total = max(int(times.sum()), 1)
    own = np.bincount(word, times, len(words)) / total
    every = np.bincount(context, times, contexts) ** 0.75
    expected = own[word] * (every / max(every.sum(), 1e-12))[context]
    values = np.log(np.maximum(times / total / expected, 1)).astype(np.float32)
    with warnings.catch_warnings():  # torch 2.11 warns although the check is switched off
        warnings.filterwarnings("ignore", message="Sparse invariant checks", append=False)
        table = torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([word, context])),
            torch.from_numpy(values),
            (len(words), contexts),
            check_invariants=False,
        )
    with torch_seed(0):
        left, sizes, _ = torch.svd_lowrank(table, q=min(WIDTH, len(words)), niter=4)
    return dict(zip(words, left * sizes.sqrt(), strict=True))
