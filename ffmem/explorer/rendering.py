"""Templates: every text that enters one is escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ffmem.explorer.pictures import PICTURES
from ffmem.version import VERSION

HERE = Path(__file__).parent
STATIC = HERE / "static"
Link = tuple[str, str]  # what it says, where it leads


def templates(navigation: list[Link]) -> Environment:
    """The environment that all pages are made with."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(navigation=navigation, version=VERSION, **PICTURES)
    environment.filters.update(token=shown_token, number=shown_number)
    return environment


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A template, filled."""
    environment: Environment = request.app.state.templates
    study = request.app.state.explored.name
    text = environment.get_template(template).render(path=request.url.path, study=study, **values)
    return HTMLResponse(text, status)


def shown_token(text: str) -> str:
    """A token with its spaces and control characters visible."""
    return repr(text)[1:-1].replace(" ", "·") or "∅"


def shown_number(value: float) -> str:
    """A number with as many digits as one reads."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
