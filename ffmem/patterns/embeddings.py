"""An embedding without any download: the model's own states at the words of a prefix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ffmem.errors import ModelError
from ffmem.memories.recording import record_forward, stop_after
from ffmem.models.language_model import LanguageModel
from ffmem.patterns.clusters import Embedding, content_words
from ffmem.patterns.prefixes import Prefix
from ffmem.patterns.surface_patterns import Background

BATCH = 64  # sentences read at once


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
            common = (self.background.words[word.lower()] + 1) / (self.background.prefixes + 1)
            total += -math.log(common) * states[first : last + 1].mean(dim=0)
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
