"""Small pictures and links that templates call; drawn as SVG, without a script."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from ffmem.explorer.queries.memory import Bar
from ffmem.explorer.queries.search import Question

LEVELS = 8  # shades of the map
WIDTH, HEIGHT = 320, 72


def stripes(shares: Sequence[float]) -> list[tuple[int, str]]:
    """One path a shade: the places of all blocks whose share has that shade."""
    paths: dict[int, list[str]] = defaultdict(list)
    for place, share in enumerate(shares):
        level = min(
            math.ceil(math.sqrt(share) * LEVELS), LEVELS
        )  # the root tells small shares apart
        paths[level].append(f"M{place} 0h1v1h-1z")
    return [(level, "".join(parts)) for level, parts in sorted(paths.items())]


def bars(distribution: Sequence[Bar]) -> Markup:
    """How many of the sampled prefixes have a coefficient of about so much."""
    most, step = max(bar.count for bar in distribution), WIDTH / len(distribution)
    boxes = "".join(
        f'<rect x="{place * step + 1:.1f}" y="{HEIGHT * (1 - bar.count / most):.1f}" '
        f'width="{step - 2:.1f}" height="{HEIGHT * bar.count / most:.1f}">'
        f"<title>{bar.low:.2f} to {bar.high:.2f}: {bar.count}</title></rect>"
        for place, bar in enumerate(distribution)
        if bar.count
    )
    end, below = f"{distribution[-1].high:.2f}", HEIGHT + 13
    return Markup(  # numbers only, so that nothing needs escaping
        f'<svg class="bars" viewBox="0 0 {WIDTH} {HEIGHT + 16}" role="img" '
        f'aria-label="Distribution of coefficients from 0 to {end}">{boxes}'
        f'<text x="0" y="{below}">0</text>'
        f'<text x="{WIDTH}" y="{below}" text-anchor="end">{end}</text></svg>'
    )


def link(asked: Question, path: str = "/search", first: int = 0, **changes: Any) -> str:
    """The address of a search that differs from this one in a few things."""
    wanted = replace(asked, **changes)
    values = {
        "by": wanted.by,
        "q": wanted.text,
        "layer": wanted.layer,
        "sort": wanted.sort if wanted.sort != "score" else None,
        "reverse": "true" if wanted.reverse else None,
        "first": first or None,
    }
    return f"{path}?{urlencode({name: value for name, value in values.items() if value})}"
