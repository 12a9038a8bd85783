"""Wait for a condition or an answer; the limit is for what never comes, not for a slow machine."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Answer = TypeVar("Answer")

LONGEST = 900.0  # seconds; beside six other jobs per core a Ray worker has taken more than 300


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Return as soon as a condition holds."""
    until, pause = time.monotonic() + LONGEST, 0.02
    while not holds():
        assert time.monotonic() < until, f"waited {LONGEST:g} seconds in vain: {what}"
        time.sleep(pause)
        pause = min(0.2, 1.5 * pause)  # to look costs time too


def in_a_loop(asking: Coroutine[Any, Any, Answer]) -> Answer:
    """In a thread of its own, because a browser of other tests may keep a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asking).result()


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Fail instead of waiting for what never comes, such as a pipe that nobody writes."""

    def late(_number: int, _frame: object) -> None:
        raise AssertionError("something waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
