"""Templates: every text that enters one is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ffmem.explorer.html_fragments import (
    bars,
    evidence_text,
    histogram,
    hit_rows,
    link,
    longest_bar,
    short_number,
    stripes,
    token_bars,
    trigger_items,
    visible_token,
)
from ffmem.store.slots import TRIGGERS_SHOWN
from ffmem.version import VERSION

HERE = Path(__file__).parent
STATIC = HERE / "static"


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
    environment.globals.update(version=VERSION, triggers_shown=TRIGGERS_SHOWN)
    for made in (
        bars,
        evidence_text,
        histogram,
        hit_rows,
        link,
        longest_bar,
        stripes,
        token_bars,
        trigger_items,
    ):
        environment.globals[made.__name__] = made
    environment.filters.update(token=visible_token, number=short_number)
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
    values |= {"path": path, "study": app.state.explored.name, "navigation": app.state.navigation}
    return templates().get_template(template).render(values)
