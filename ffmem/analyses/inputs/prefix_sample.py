"""One sample of validation prefixes, drawn once and used by every analysis of inference.

Prefixes of one sentence are alike, so whole sentences are the units of every interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.corpus.sentences import Sentences
from ffmem.errors import CorpusError
from ffmem.scan.hashing import priorities

BATCH_TOKENS = 4096  # tokens of one forward pass
TURN = 40  # bits that no sentence's number has
NO_TOKEN = -1  # no token: an unfilled slot, or the end of the sentence


@dataclass(frozen=True)
class PrefixSample:
    """One place in each of some sentences, in order of their numbers, then a second one, and so on.

    `positions` [n] is how many tokens are read, `gold` [n] the token that follows, NO_TOKEN at the
    end of a sentence. The sentence of row i has the tokens `tokens[starts[i]:starts[i + 1]]`.
    """

    numbers: Tensor
    positions: Tensor
    gold: Tensor
    tokens: Tensor
    starts: Tensor
    texts: tuple[str, ...]
    prefix_ends: Tensor  # [n], the character of the text where the prefix ends

    def __len__(self) -> int:
        """How many prefixes there are."""
        return len(self.numbers)

    @cached_property
    def sentences(self) -> Tensor:
        """[n], which sentence a prefix is of, from 0 on: the unit of intervals."""
        return self.numbers.unique(return_inverse=True)[1]

    @property
    def count(self) -> int:
        """How many sentences there are; the first so many rows have one prefix of each."""
        return int(self.sentences.max()) + 1

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
        )


def draw_sample(
    shards_of_sentences: Iterable[Sentences], count: int = 4000, seed: int = 0, places: int = 1
) -> PrefixSample:
    """Draw `count` different sentences and `places` different random positions in each, from 1 on.

    All come from a hash of the sentence's number and the seed: neither the order of reading nor
    the size of the shards changes the sample, and one of more places has this one in it. A sentence
    without tokens is passed over, and a short one has fewer places. Holds one shard and the sample.
    """
    held: _Candidates | None = None
    for sentences in shards_of_sentences:
        held = _merge(held, _draw_from(sentences, seed, count, places), count)
    if held is None or not len(held.numbers):
        raise CorpusError("the validation text has no sentence to draw; give a longer one")
    order = np.argsort(held.numbers)
    rows = [held.rows[i] for i in order]
    turns = [[row[turn] for row in rows if turn < len(row)] for turn in range(places)]
    return _sample([one for turn in turns for one in turn])


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
    rows: list[list[_Row]]  # of each sentence, in the order of the draw


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


def _draw_from(sentences: Sentences, seed: int, count: int, places: int) -> _Candidates:
    """The sentences of one shard that may stay; nothing is made of the others."""
    admissible = _admissible(sentences)
    fit = np.flatnonzero(admissible.sizes)
    ranks = priorities(torch.from_numpy(sentences.numbers[fit]), seed).numpy()
    fit = fit[np.lexsort((sentences.numbers[fit], ranks))[:count]]
    numbers = torch.from_numpy(sentences.numbers[fit])
    drawn = _draw_places(numbers, admissible.sizes[fit], seed, places)
    rows = []
    for row, start, size, steps in zip(
        fit.tolist(), admissible.starts[fit], admissible.sizes[fit], drawn, strict=True
    ):
        tokens, text = sentences.token_ids(row), sentences.texts[row]
        rows.append(
            [
                _Row(
                    int(sentences.numbers[row]),
                    position,
                    tokens,
                    text,
                    len(sentences.prefix(row, position)),
                )
                for position in admissible.positions[start + steps[:size]].tolist()
            ]
        )
    return _Candidates(numbers.numpy(), priorities(numbers, seed).numpy(), rows)


def _draw_places(
    numbers: Tensor, sizes: NDArray[np.int64], seed: int, places: int
) -> NDArray[np.int64]:
    """[sentence, place]: different numbers below each size; where there are no more, anything."""
    drawn = np.empty((len(numbers), 0), dtype=np.int64)
    for turn in range(places):
        hashes = priorities(numbers ^ (turn << TURN), seed + 1).long().numpy()
        step = hashes % np.maximum(sizes - turn, 1)
        for taken in np.sort(drawn, axis=1).T:  # count on past those that are taken
            step += step >= taken
        drawn = np.column_stack([drawn, step])
    return drawn


def _merge(held: _Candidates | None, new: _Candidates, count: int) -> _Candidates:
    """The `count` with the smallest priorities of both."""
    rows = (held.rows if held else []) + new.rows
    numbers = np.concatenate([held.numbers, new.numbers]) if held else new.numbers
    ranks = np.concatenate([held.ranks, new.ranks]) if held else new.ranks
    first = np.lexsort((numbers, ranks))[:count]
    return _Candidates(numbers[first], ranks[first], [rows[i] for i in first])


def _sample(rows: list[_Row]) -> PrefixSample:
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


@dataclass(frozen=True)
class PlaceBatch:
    """Sentences that a model reads at once, each up to its last place in the sample."""

    rows: Tensor  # [place] of the sample, sentence by sentence
    lines: Tensor  # [place], which one of `tokens` its sentence is
    columns: Tensor  # [place], where in it the prefix ends
    tokens: Tensor  # [line, width]


def sentence_batches(
    sample: PrefixSample, bos: int | None, most_rows: int, budget: int = BATCH_TOKENS
) -> Iterator[PlaceBatch]:
    """All places once, each sentence in one line, at most `most_rows` places in a batch.

    The `budget` of tokens is divided by the places of a sentence, whose activations are held.
    """
    counts = sample.sentences.bincount()
    places = sample.sentences.argsort(stable=True).split(counts.tolist())
    longest = [sample.prefix_tokens(int(rows[sample.positions[rows].argmax()])) for rows in places]
    most = int(counts.max())
    for batch in prefix_batches(longest, bos, max(1, most_rows // most), budget // most):
        rows = torch.cat([places[sentence] for sentence in batch.rows.tolist()])
        lines = torch.arange(len(batch.rows)).repeat_interleave(counts[batch.rows])
        columns = sample.positions[rows] - int(bos is None)
        yield PlaceBatch(rows, lines, columns, batch.tokens)


def other_rows(sentences: Tensor, step: int) -> Tensor:
    """[row]: the next one of another sentence, `step` at a time; the own one where there is none.

    `sentences` [row] says which sentence a row is of.
    """
    found = torch.arange(len(sentences))
    for _ in range(len(sentences)):
        same = sentences[found] == sentences
        if not same.any():
            break
        found = torch.where(same, (found + step) % len(sentences), found)
    return found
