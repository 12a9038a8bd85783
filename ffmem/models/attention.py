"""Attention for batches that each have another shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def any_shape() -> Iterator[None]:
    """Leave out cuDNN's attention on a GPU, which makes a plan for every new shape it meets.

    The plan costs as much as the pass itself, and with batches of like length nearly every batch
    has a shape of its own; the other kernels are as fast and need none.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
