"""Templates as pages: what they are filled with is text, and they run only their own script."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from ffmem.figures.saving import chart_script
from ffmem.report.verdicts import interval_text
from ffmem.store.digests import write_and_note
from ffmem.store.memory_page import cut


@cache
def page_script() -> str:
    """All that a page runs: the library that draws charts, and what fits them to the page."""
    return chart_script() + resources.files(__package__).joinpath("templates/draw.js").read_text(
        "utf-8"
    )


def script_source(script: str) -> str:
    """The source expression by which a page's policy lets this script run, and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def render(template: str, **values: Any) -> str:
    """Fill a template; HTML escapes every text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ffmem.report"),
        autoescape=jinja2.select_autoescape(["html", "html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = interval_text
    environment.filters["source"] = script_source
    environment.filters["cut"] = cut
    environment.filters["visible"] = lambda text: text.replace("\n", "⏎")
    return environment.get_template(template).render(**values)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    write_and_note(path, lambda part: part.write_text(text, encoding="utf-8"))
