"""Templates and what fills them in; every text that enters one is escaped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ffmem.analyses.verdicts import interval_text
from ffmem.annotations.explanations import QUESTIONS
from ffmem.explorer.hit_table import evidence_text, extra_columns, heading, hit_rows, link
from ffmem.explorer.memory_parts import (
    histogram,
    longest_bar,
    pattern_groups,
    token_bars,
    trigger_items,
    weight_items,
    weight_notes,
)
from ffmem.report.rendering import whole_numbers
from ffmem.store.slots import TRIGGERS_SHOWN
from ffmem.text import short_number, visible_token
from ffmem.version import VERSION

HERE = Path(__file__).parent
STATIC = HERE / "static"
Link = tuple[str, str]  # what it says, where it leads


LEVELS = 8  # shades of the map


def stripes(shares: Sequence[float]) -> list[tuple[int, str]]:
    """One path a shade: the places of all blocks whose share has that shade."""
    paths: dict[int, list[str]] = defaultdict(list)
    for place, share in enumerate(shares):
        level = min(
            math.ceil(math.sqrt(share) * LEVELS), LEVELS
        )  # the root tells small shares apart
        paths[level].append(f"M{place} 0h1v1h-1z")
    return [(level, "".join(parts)) for level, parts in sorted(paths.items())]


@cache
def templates() -> Environment:
    """The environment that all pages are made with, compiled once for all apps of a process."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(version=VERSION, triggers_shown=TRIGGERS_SHOWN, questions=QUESTIONS)
    for function in (
        extra_columns,
        evidence_text,
        heading,
        histogram,
        hit_rows,
        link,
        longest_bar,
        pattern_groups,
        stripes,
        token_bars,
        trigger_items,
        weight_items,
        weight_notes,
    ):
        environment.globals[function.__name__] = function
    environment.filters.update(
        token=visible_token, number=short_number, whole=whole_numbers, shown=interval_text
    )
    for name in environment.list_templates():
        environment.get_template(name)  # read now, so that no page waits for it
    return environment


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A template, filled, as an answer."""
    return HTMLResponse(
        fill_template(request.app, request.scope["path"], template, **values), status
    )


def fill_template(app: FastAPI, path: str, template: str, **values: Any) -> str:
    """A template, filled; `path` is the page's own."""
    values |= {"path": path, "study": app.state.context.name, "navigation": app.state.navigation}
    return templates().get_template(template).render(values)
