"""Words by the company they keep in the scanned text; no language model has a part in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.inputs.english import is_content
from ffmem.models.blocks.trace import torch_seed

WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
MOST_WORDS = 4_000  # that have a vector, the commonest first
LEAST_COUNT = 3  # times that a word must be there
WINDOW = 8  # content words to the right that keep a word company
WIDTH = 100  # numbers in a word's vector


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
    vectors = _decompose(_mutual_information(table + table.T))
    return dict(zip(common, vectors, strict=True))


def _mutual_information(together: Tensor) -> Tensor:
    """Log p(a, b) / p(a) p(b) of counts [word, word], nothing below zero.

    The chance of a context is taken to the power 0.75, so that rare ones do not look informative.
    """
    total = together.sum().clamp(min=1)
    own = together.sum(dim=1, keepdim=True) / total
    context = together.sum(dim=0) ** 0.75
    context = context / context.sum().clamp(min=1)
    expected = (own * context).clamp(min=1e-12)
    return (together / total / expected).clamp(min=1).log()


def _decompose(table: Tensor) -> Tensor:
    """The rows of a square table in few dimensions, the same every time."""
    width = min(WIDTH, len(table))
    with torch_seed(0):
        left, sizes, _ = torch.svd_lowrank(table, q=width, niter=4)
    return left * sizes.sqrt()
