"""Progress of long loops, reported to a listener; free without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
StepListener = Callable[[str, float], None]  # what is being done, and which share of it is done
_listener: ContextVar[StepListener | None] = ContextVar("listener", default=None)


@contextmanager
def listen(listener: StepListener) -> Iterator[None]:
    """Report every step inside the `with` to `listener`."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(what: str, share: float) -> None:
    """Report a task and the share of it that is done, where there is no loop."""
    if (listener := _listener.get()) is not None:
        listener(what, share)


def steps(items: Collection[Item], what: str) -> Iterator[Item]:
    """Yield the items; each one is a step of the task."""
    return sized_steps(items, len(items), what, lambda _item: 1)


def sized_steps(
    items: Iterable[Item], total: int, what: str, size: Callable[[Item], int]
) -> Iterator[Item]:
    """Yield the items; their sizes add up to `total`."""
    done = 0
    for item in items:
        tell(what, done / max(total, 1))
        yield item
        done += size(item)
