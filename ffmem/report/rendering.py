"""Templates as pages: what they are filled with is text, and they run only their own script."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from ffmem.analyses.claim import interval_text
from ffmem.analyses.verdicts import SIGNS
from ffmem.errors import IN_NUMBERS
from ffmem.text import cut


@cache
def page_script() -> str:
    """The scripts of a page: the chart library, and the one that fits charts to the page."""
    from ffmem.figures.saving import chart_script  # here: Altair is slow to import

    return "\n".join([chart_script(), fitting_script(), _script("draw.js")])


@cache
def page_source() -> str:
    """The source expression of the script of every page that this version writes."""
    return script_source(page_script())


def fitting_script() -> str:
    """The script that makes a chart as wide as its place on a page."""
    return _script("fit.js")


def _script(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def script_source(script: str) -> str:
    """The source expression by which a page's policy lets this script run, and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def render(template: str, **values: Any) -> str:
    """Fill a template; HTML escapes every text and ends no line inside a number."""
    return _environment(".html" in template).get_template(template).render(**values)


@cache
def _environment(is_html: bool) -> jinja2.Environment:
    """The environment of all pages, or of all other files."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ffmem.report"),
        autoescape=jinja2.select_autoescape(["html", "html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=whole_numbers if is_html else None,
    )
    environment.filters["shown"] = interval_text
    environment.filters["source"] = script_source
    environment.filters["cut"] = cut
    environment.filters["sign"] = SIGNS.__getitem__
    environment.globals["signs"] = SIGNS
    environment.filters["visible"] = lambda text: text.replace("\n", "⏎")
    return environment


def whole_numbers(value: Any) -> Any:
    """A text whose numbers keep their units and whose intervals their ends on one line."""
    return re.sub(IN_NUMBERS, "\u00a0", value) if type(value) is str else value
