"""Address space: how much of it a process may have (`ulimit -v`), and what parts of ffmem need.

Clusters cap memory by it. Where it runs out, libraries end the process without a word, so it is
asked for before the work begins.
"""

from __future__ import annotations

import os

from ffmem.errors import FfmemError

GIB = 1 << 30
STUDY = 3 * GIB // 4  # bytes: the libraries that read a study
MODEL = 5 * GIB // 4  # those that run a model
CORE = 3 * GIB // 8  # the threads of a scan, or of the explorer, for one core
PAGES = GIB // 2  # the explorer, besides what it maps
FIGURES = 70 * GIB  # V8, which draws: it reserves 64 of them and uses little


def address_space() -> int | None:
    """The most bytes that this process may have; None without a limit, or where none is known."""
    try:
        import resource
    except ImportError:  # on Windows
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if most == resource.RLIM_INFINITY else most


def with_threads() -> int:
    """The bytes that libraries take with threads on every core."""
    return MODEL + CORE * (os.cpu_count() or 1)


def check_address_space(need: int, what: str) -> None:
    """Refuse what needs more bytes than this process may have; `what` names it in the error."""
    most = address_space()
    if most is not None and most < need:
        raise FfmemError(
            f"{what} needs about {need / GIB:.1f} GiB of address space and this process may have "
            f"{most / GIB:.1f} GiB; run `ulimit -v {(need >> 10) + 1}` first, or ask for a job "
            "with more memory"
        )


def room_for_model() -> None:
    """Refuse a model beside a scan that is open, before it is imported, where there is no room."""
    check_address_space(with_threads() + PAGES, "a model beside its scan")


def room_for_figures() -> None:
    """Refuse to draw figures at the end of work that has not begun, where there is no room."""
    check_address_space(FIGURES, "a figure")
