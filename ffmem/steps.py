"""How far a long loop is, for whoever listens; a loop that nobody listens to costs nothing."""

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
    """Tell `listener` of every step inside the `with`."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(what: str, share: float) -> None:
    """Say what is being done and which share of it is done, where that is not a loop."""
    if (listener := _listener.get()) is not None:
        listener(what, share)


def steps(items: Collection[Item], what: str) -> Iterator[Item]:
    """The items, each of which is a step of what is being done."""
    return sized_steps(items, len(items), what, lambda _item: 1)


def sized_steps(
    items: Iterable[Item], total: int, what: str, size: Callable[[Item], int]
) -> Iterator[Item]:
    """The items, whose sizes add up to `total`."""
    done = 0
    for item in items:
        tell(what, done / max(total, 1))
        yield item
        done += size(item)
