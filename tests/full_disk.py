"""A disk that is nearly full."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    resource = pytest.importorskip("resource", reason="Windows sets no such limit")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
