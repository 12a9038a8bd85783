"""Ctrl-C between two batches, so that what is saved is that of whole batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopped_between() -> Iterator[Callable[[], None]]:
    """Put the first Ctrl-C off until the function given is called; the second one is at once.

    In the middle of a batch some layers have seen it and others have not: saved there, a resumed
    scan would count some of it twice.
    """
    asked = False

    def note(_signal: int, _frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    def stop_if_asked() -> None:
        if asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield stop_if_asked  # signals reach the main thread only
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield stop_if_asked
    finally:
        signal.signal(signal.SIGINT, before)
