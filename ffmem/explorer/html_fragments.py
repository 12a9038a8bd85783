"""How tokens and numbers are written on pages and in JSON."""

from __future__ import annotations

import math


def shown_token(text: str) -> str:
    """A token with its spaces and control characters visible."""
    return repr(text)[1:-1].replace(" ", "·") or "∅"


def shown_number(value: float) -> str:
    """A number with as many digits as one reads."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def known(value: float) -> float | None:
    """A number that JSON can carry; None where it is none, or without end."""
    return value if math.isfinite(value) else None
