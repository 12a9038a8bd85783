"""The neural memory (equation 2 of the paper), which a feed-forward layer is but for the softmax.

FF(x) = f(x Kᵀ) V        MN(x) = softmax(x Kᵀ) V
"""

from __future__ import annotations

from torch import Tensor

from ffmem.errors import ModelError


def neural_memory(keys: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """softmax(x Kᵀ) V: the mean of the values, each weighted by how well its key fits x.

    keys [memory, width] and values [memory, size] are rows; x [..., width] gives [..., size].
    """
    fits = keys.ndim == values.ndim == 2 and len(keys) == len(values) and x.ndim > 0
    if not fits or x.shape[-1] != keys.shape[1]:
        shapes = ", ".join(str(list(one.shape)) for one in (keys, values, x))
        raise ModelError(
            "keys, values and x do not fit together; give keys [memory, width], values "
            f"[memory, size] and x [..., width], not {shapes}"
        )
    return (x @ keys.T).softmax(dim=-1) @ values
