"""Wait for a condition; the limit is for what never comes, not for a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 300.0  # seconds


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Return as soon as a condition holds."""
    until = time.monotonic() + LONGEST
    while not holds():
        assert time.monotonic() < until, f"waited {LONGEST:g} seconds in vain: {what}"
        time.sleep(0.02)
