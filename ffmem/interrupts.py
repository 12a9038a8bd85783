"""Ctrl-C, and signals that take its way: what is done is saved, one line says so, all ends.

Clusters send SIGTERM before they take a machine away, and terminals SIGHUP when they close.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

OTHERS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_received = signal.SIGINT


def stop_as_by_ctrl_c() -> None:
    """Let the other signals do what Ctrl-C does, but those that are ignored, as by nohup."""
    for number in OTHERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def end_at_once() -> None:
    """Undo this in a process that has nothing to save; Ctrl-C is for the first process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in OTHERS:
        signal.signal(number, signal.SIG_DFL)


def exit_code() -> int:
    """The exit code of a process that was stopped, which tells shells by which signal."""
    return 128 + _received


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Ctrl-C while this lasts is raised at its end.

    A batch that some layers have seen and others have not, or that was read but not counted, would
    be read again by those that have when the scan goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C goes elsewhere
        return
    ours = (signal.default_int_handler, _stop)  # others are somebody else's affair
    before = {
        number: handler
        for number in (signal.SIGINT, *OTHERS)
        if (handler := signal.getsignal(number)) in ours
    }
    noted: list[int] = []
    for number in before:
        signal.signal(number, lambda number, _frame: noted.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in noted[:1]:
        signal.raise_signal(number)


def _stop(number: int, _frame: FrameType | None) -> None:
    global _received  # noqa: PLW0603 - a process is stopped once
    _received = signal.Signals(number)
    raise KeyboardInterrupt
