"""Ctrl-C at a moment when nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Ctrl-C while this lasts is raised at its end.

    A batch that some layers have seen and others have not, or that was read but not counted, would
    be read again by those that have when the scan goes on.
    """
    handler = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread()
    if not here or handler is not signal.default_int_handler:
        yield  # Ctrl-C goes elsewhere, or is somebody else's affair
        return
    pressed = False

    def note(_number: int, _frame: object) -> None:
        nonlocal pressed
        pressed = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt
