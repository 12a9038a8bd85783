"""Sentences of like length together, a token budget per batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ffmem.corpus.sentences import Sentences
from ffmem.errors import CorpusError

# One batch more must save this part of the budget in padding: about what a GPU loses by starting
# anew and by running a batch that does not fill it.
_BATCH_SHARE = 32


@dataclass(frozen=True)
class Batch:
    """Sentences that a model reads at once.

    `tokens` [row, width] starts with `bos` columns of the BOS (1 or 0) and is padded on the
    right, so a causal model needs no mask: the coefficient of position p is in column p - 1 + bos,
    and what stands in columns from `lengths + bos` on means nothing.
    """

    tokens: Tensor
    lengths: Tensor  # [row], real tokens, the BOS not counted
    sentences: Tensor  # [row], sentence numbers
    bos: int
    content: Tensor | None = (
        None  # [row, width - bos], tokens that a prefix may end with; None: all
    )

    def halves(self) -> tuple["Batch", "Batch"]:
        """The same sentences in two batches, for when all of them do not fit in memory."""
        rows = len(self.lengths)
        if rows < 2:
            raise CorpusError(
                f"one sentence of {int(self.lengths[0])} tokens does not fit in memory; "
                "choose a smaller max_tokens, a smaller data type or another device"
            )
        return self._rows(0, rows // 2), self._rows(rows // 2, rows)

    def _rows(self, first: int, last: int) -> "Batch":
        width = int(self.lengths[first:last].max()) + self.bos
        return Batch(
            self.tokens[first:last, :width].contiguous(),
            self.lengths[first:last],
            self.sentences[first:last],
            self.bos,
            None if self.content is None else self.content[first:last, : width - self.bos],
        )


def batches(sentences: Sentences, bos: int | None, pad: int, budget: int) -> Iterator[Batch]:
    """All sentences of a shard once, longest first, at most `budget` tokens per batch.

    The budget counts padding and BOS; a sentence longer than it is a batch alone. Longest first,
    so that a budget too large for the memory shows in the first batch and later ones reuse its
    memory. Equal lengths keep the order of the corpus: the same input gives the same batches.
    """
    lengths = sentences.lengths
    order = np.argsort(-lengths, kind="stable")
    leading = 0 if bos is None else 1
    for first, last, rows in _cuts(lengths + leading, budget):
        for start in range(first, last, rows):
            yield _batch(sentences, order[start : min(start + rows, last)], bos, pad)


def _cuts(widths: np.ndarray[Any, Any], budget: int) -> list[tuple[int, int, int]]:
    """Where to cut rows that are sorted longest first, as (first, last, rows per batch).

    Chosen so that padding, and a fixed price for every batch, add up to the least; the best way
    to do all rows up to some width is built from the best ways for smaller widths.
    """
    price = budget // _BATCH_SHARE
    distinct, counts = np.unique(widths, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])  # [i], rows narrower than the i-th width
    best, previous = np.zeros(len(below)), np.zeros(len(below), dtype=np.int64)
    for i, width in enumerate(distinct, 1):
        rows = below[i] - below[:i]
        some = -(-rows // max(1, budget // width))  # batches, rounded up
        cost = best[:i] + rows * width + price * some
        previous[i] = int(cost.argmin())
        best[i] = cost[previous[i]]
    found, i = [], len(distinct)
    while i:
        j, total = int(previous[i]), len(widths)
        found.append((total - below[i], total - below[j], max(1, budget // int(distinct[i - 1]))))
        i = j
    return [(int(first), int(last), rows) for first, last, rows in found]


def _batch(sentences: Sentences, rows: np.ndarray[Any, Any], bos: int | None, pad: int) -> Batch:
    lengths = sentences.lengths[rows]
    leading = 0 if bos is None else 1
    tokens = np.full((len(rows), int(lengths.max()) + leading), pad, dtype=np.int64)
    columns = np.arange(tokens.shape[1] - leading)
    real = columns < lengths[:, None]
    flat = sentences.starts[rows][:, None] + columns
    tokens[:, leading:][real] = sentences.tokens[flat[real]]
    if bos is not None:
        tokens[:, 0] = bos
    content = None
    if sentences.content is not None:
        content = np.zeros(real.shape, dtype=bool)
        content[real] = sentences.content[flat[real]]
    return Batch(
        torch.from_numpy(tokens),
        torch.from_numpy(lengths),
        torch.from_numpy(sentences.numbers[rows]),
        leading,
        None if content is None else torch.from_numpy(content),
    )
