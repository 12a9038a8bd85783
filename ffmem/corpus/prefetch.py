"""Work done ahead, in one background thread."""

import threading
from collections.abc import Iterator
from queue import Full, Queue
from typing import Any, TypeVar

Item = TypeVar("Item")

_POLL = 0.05  # seconds between looks at whether the reader has stopped
_PATIENCE = 1.0  # seconds that a reader who stops early waits for the thread


def prefetch(iterator: Iterator[Item], depth: int = 2) -> Iterator[Item]:
    """The same items in the same order, up to `depth` of them made ahead of the reader.

    An exception reaches the reader at the item where it happened. When the reader stops early
    the thread ends after the item it is making.
    """
    queue: Queue[tuple[str, Any]] = Queue(depth)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(iterator, queue, stopped), name="ffmem-prefetch", daemon=True
    )
    thread.start()
    try:
        while True:
            kind, item = queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        stopped.set()
        thread.join(_PATIENCE)


def _fill(
    iterator: Iterator[Any], queue: "Queue[tuple[str, Any]]", stopped: threading.Event
) -> None:
    try:
        for item in iterator:
            if not _put(queue, ("item", item), stopped):
                return
        _put(queue, ("end", None), stopped)
    except BaseException as error:  # the reader's thread raises it
        _put(queue, ("error", error), stopped)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _put(queue: "Queue[tuple[str, Any]]", item: tuple[str, Any], stopped: threading.Event) -> bool:
    """Wait for room; False when the reader has stopped."""
    while not stopped.is_set():
        try:
            queue.put(item, timeout=_POLL)
        except Full:
            continue
        return True
    return False
