"""Comparisons and counts; on the CPU by numpy, which is many times faster at them than torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def greater(numbers: Tensor, than: Tensor | float) -> Tensor:
    """Where numbers are above others, as flags of the numbers' shape."""
    if numbers.device.type != "cpu":
        return numbers > than
    other = than.numpy() if isinstance(than, Tensor) else than
    return torch.from_numpy(np.greater(numbers.numpy(), other))


def how_many(flags: Tensor) -> int:
    """How many flags are set."""
    if flags.device.type != "cpu":
        return int(flags.sum())
    return int(np.count_nonzero(flags.numpy()))


def where_set(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every flag that is set, in order: flags are [rows, columns]."""
    if flags.device.type != "cpu":
        rows, columns = flags.nonzero(as_tuple=True)
        return rows, columns
    row, column = np.divmod(np.flatnonzero(flags.numpy()), flags.shape[1])
    return torch.from_numpy(row), torch.from_numpy(column)
