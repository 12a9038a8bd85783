"""One sample of validation prefixes, drawn once and used by every analysis of inference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.corpus.sentences import Sentences
from ffmem.errors import CorpusError
from ffmem.scan.hashing import priorities

BATCH_TOKENS = 4096  # tokens of one forward pass
NO_TOKEN = -1  # no token: an unfilled slot, or the end of the sentence


@dataclass(frozen=True)
class PrefixSample:
    """Distinct sentences in order of their numbers, and one place in each.

    `positions` [n] is how many tokens are read, `gold` [n] the token that follows, NO_TOKEN at the
    end of a sentence. Sentence i has the tokens `tokens[starts[i]:starts[i + 1]]`.
    """

    numbers: Tensor
    positions: Tensor
    gold: Tensor
    tokens: Tensor
    starts: Tensor
    texts: tuple[str, ...]
    prefix_ends: Tensor  # [n], the character of the text where the prefix ends
    seed: int

    def __len__(self) -> int:
        """How many prefixes there are."""
        return len(self.numbers)

    def prefix(self, row: int) -> str:
        """The text that was read."""
        return self.texts[row][: int(self.prefix_ends[row])]

    def prefix_tokens(self, row: int) -> Tensor:
        """The tokens that were read, without BOS."""
        start = int(self.starts[row])
        return self.tokens[start : start + int(self.positions[row])]

    def rows(self, chosen: Tensor) -> PrefixSample:
        """Some of the prefixes, in the order given."""
        pieces = [self.tokens[self.starts[i] : self.starts[i + 1]] for i in chosen.tolist()]
        sizes = torch.tensor([0, *(len(piece) for piece in pieces)])
        return PrefixSample(
            self.numbers[chosen],
            self.positions[chosen],
            self.gold[chosen],
            torch.cat(pieces) if pieces else self.tokens[:0],
            sizes.cumsum(0),
            tuple(self.texts[i] for i in chosen.tolist()),
            self.prefix_ends[chosen],
            self.seed,
        )


def draw_sample(
    shards_of_sentences: Iterable[Sentences], count: int = 4000, seed: int = 0
) -> PrefixSample:
    """Draw `count` different sentences and a uniformly random position in each, from 1 on.

    Both come from a hash of the sentence's number and the seed: neither the order of reading nor
    the size of the shards changes the sample. A sentence without tokens is passed over. Holds one
    shard and the sample.
    """
    held: _Candidates | None = None
    for sentences in shards_of_sentences:
        held = _merge(held, _draw_from(sentences, seed, count), count)
    if held is None or not len(held.numbers):
        raise CorpusError("the validation text has no sentence to draw; give a longer one")
    order = np.argsort(held.numbers)
    return _sample([held.rows[i] for i in order], seed)


@dataclass(frozen=True)
class _Row:
    number: int
    position: int
    tokens: NDArray[np.int32]
    text: str
    prefix_end: int


@dataclass(frozen=True)
class _Candidates:
    numbers: NDArray[np.int64]
    ranks: NDArray[np.int32]
    rows: list[_Row]


@dataclass(frozen=True)
class _Admissible:
    """The positions that may be drawn: sentence i has `sizes[i]` of them, from `starts[i]` on."""

    positions: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def _admissible(sentences: Sentences) -> _Admissible:
    """All positions from 1 on; of a conversation those that end with content."""
    places = np.arange(len(sentences.tokens))
    positions = places - np.repeat(sentences.starts[:-1], sentences.lengths) + 1
    if sentences.content is None:
        return _Admissible(positions, sentences.starts[:-1], sentences.lengths)
    before = np.concatenate([[0], np.cumsum(sentences.content)])[sentences.starts]
    return _Admissible(positions[sentences.content], before[:-1], np.diff(before))


def _draw_from(sentences: Sentences, seed: int, count: int) -> _Candidates:
    """The sentences of one shard that may stay; nothing is made of the others."""
    admissible = _admissible(sentences)
    fit = np.flatnonzero(admissible.sizes)
    ranks = priorities(torch.from_numpy(sentences.numbers[fit]), seed).numpy()
    fit = fit[np.lexsort((sentences.numbers[fit], ranks))[:count]]
    numbers = torch.from_numpy(sentences.numbers[fit])
    steps = priorities(numbers, seed + 1).long().numpy() % admissible.sizes[fit]
    positions = admissible.positions[admissible.starts[fit] + steps]
    rows = [
        _Row(
            int(number),
            position,
            sentences.token_ids(row),
            sentences.texts[row],
            len(sentences.prefix(row, position)),
        )
        for number, position, row in zip(numbers, positions.tolist(), fit.tolist(), strict=True)
    ]
    return _Candidates(numbers.numpy(), priorities(numbers, seed).numpy(), rows)


def _merge(held: _Candidates | None, new: _Candidates, count: int) -> _Candidates:
    """The `count` with the smallest priorities of both."""
    rows = (held.rows if held else []) + new.rows
    numbers = np.concatenate([held.numbers, new.numbers]) if held else new.numbers
    ranks = np.concatenate([held.ranks, new.ranks]) if held else new.ranks
    first = np.lexsort((numbers, ranks))[:count]
    return _Candidates(numbers[first], ranks[first], [rows[i] for i in first])


def _sample(rows: list[_Row], seed: int) -> PrefixSample:
    sizes = torch.tensor([0, *(len(row.tokens) for row in rows)])
    gold = [
        int(row.tokens[row.position]) if row.position < len(row.tokens) else NO_TOKEN
        for row in rows
    ]
    return PrefixSample(
        numbers=torch.tensor([row.number for row in rows]),
        positions=torch.tensor([row.position for row in rows]),
        gold=torch.tensor(gold),
        tokens=torch.from_numpy(np.concatenate([row.tokens for row in rows])).long(),
        starts=sizes.cumsum(0),
        texts=tuple(row.text for row in rows),
        prefix_ends=torch.tensor([row.prefix_end for row in rows]),
        seed=seed,
    )


@dataclass(frozen=True)
class PrefixBatch:
    """Prefixes that a model reads at once: `columns` [row] is where each one ends."""

    rows: Tensor  # of the sample
    tokens: Tensor  # [row, width], BOS first where there is one, padded on the right
    columns: Tensor


def prefix_batches(
    prefixes: Sequence[Tensor], bos: int | None, most_rows: int, budget: int = BATCH_TOKENS
) -> Iterator[PrefixBatch]:
    """All prefixes once, longest first, at most `budget` tokens per batch, padding counted.

    A model without a BOS cannot read an empty prefix; such prefixes are left out.
    """
    lead = [] if bos is None else [bos]
    sizes = torch.tensor([len(prefix) + len(lead) for prefix in prefixes])
    order = sizes.argsort(descending=True, stable=True)
    order = order[sizes[order] > 0]
    start = 0
    while start < len(order):
        width = int(sizes[order[start]])
        rows = order[start : start + max(1, min(most_rows, budget // width))]
        tokens = torch.full((len(rows), width), bos or 0)
        for place, row in enumerate(rows.tolist()):
            tokens[place, len(lead) : int(sizes[row])] = prefixes[row]
        yield PrefixBatch(rows, tokens, sizes[rows] - 1)
        start += len(rows)
