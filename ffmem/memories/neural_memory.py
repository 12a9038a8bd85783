"""The identity behind the paper: a feed-forward layer is a neural memory without softmax.

Neural memory (Sukhbaatar et al., 2015):  MN(x) = softmax(x K^T) V
Feed-forward layer:                       FF(x) = f(x K^T) V,  f an activation such as ReLU

Both compare x with every key and add up the values; only f is not normalised.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def feed_forward(
    x: Tensor, keys: Tensor, values: Tensor, f: Callable[[Tensor], Tensor] = torch.relu
) -> Tensor:
    """f(x K^T) V for x [..., width], keys [memory, width] and values [memory, width]."""
    return f(x @ keys.T) @ values


def neural_memory(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(x K^T) V: the same with coefficients that are positive and add up to one."""
    return feed_forward(x, keys, values, lambda scores: scores.softmax(dim=-1))
