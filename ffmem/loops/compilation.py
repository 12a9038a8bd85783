"""Loops over numbers, compiled by numba; importing it takes a while, so import this late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

Loop = Callable[..., Any]
ANY_ORDER = {
    "reassoc",
    "nsz",
    "nnan",
    "contract",
}  # what lets a sum or a maximum use wide registers


def compile_loop(function: Loop) -> Loop:
    """The function as machine code, kept on disk for the next run if there is a place for it."""
    return _compile(function, fastmath=False)


def compile_sum(function: Loop) -> Loop:
    """The same for sums and maxima over numbers, which may be taken in any order."""
    return _compile(function, fastmath=ANY_ORDER)


def _compile(function: Loop, fastmath: bool | set[str]) -> Loop:
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        loop: Loop = njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to keep it
        loop = njit(**options)(function)
    return loop
