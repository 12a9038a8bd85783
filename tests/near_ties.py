"""Answers that rest on an order of scores, compared so that a near-tie may fall either way.

Scores that differ by less than rounding have no defined order: another batch, another number of
threads or another processor may put either first. What is clear of the next must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

NEAR = 1e-4  # scores of toys are about 1, and rounding moves them by about 1e-6


def assert_best(tokens: Tensor | int, scores: Tensor) -> None:
    """Every chosen token has the largest of its row's scores, or one as large but for rounding."""
    chosen = torch.as_tensor(tokens)
    own = scores.gather(-1, chosen[..., None])[..., 0]
    assert (own >= scores.amax(-1) - NEAR).all(), (chosen, scores.argmax(-1))


def is_surely_best(tokens: Tensor | int, scores: Tensor) -> Tensor:
    """Whether a token's score is above all others of its row, whatever the rounding."""
    chosen = torch.as_tensor(tokens).expand(scores.shape[:-1])
    own = scores.gather(-1, chosen[..., None])
    return (scores >= own - NEAR).sum(-1) == 1


def may_be_best(tokens: Tensor | int, scores: Tensor) -> Tensor:
    """Whether rounding could put a token first in its row."""
    chosen = torch.as_tensor(tokens).expand(scores.shape[:-1])
    return scores.gather(-1, chosen[..., None])[..., 0] >= scores.amax(-1) - NEAR


def ranks_of(token: int, scores: Tensor) -> tuple[int, int]:
    """The first and the last rank from 0 that rounding leaves open to a token."""
    surely_above = int((scores > scores[token] + NEAR).sum())
    surely_not_below = int((scores >= scores[token] - NEAR).sum())
    return surely_above, surely_not_below - 1


def assert_rank(rank: Tensor | int, token: Tensor | int, scores: Tensor) -> None:
    """The rank of a token among scores, from 0."""
    first, last = ranks_of(int(token), scores)
    assert first <= int(rank) <= last, (int(rank), first, last)


def assert_strongest(order: Iterable[int], strengths: Tensor) -> None:
    """The numbers of the largest strengths, each once, in falling order."""
    found = list(order)
    assert len(set(found)) == len(found)
    expected = strengths.sort(descending=True).values[: len(found)]
    torch.testing.assert_close(strengths[found], expected, rtol=0, atol=NEAR)
