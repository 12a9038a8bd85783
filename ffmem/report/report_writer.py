"""A report as files: one page that opens offline, Markdown, and every number as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from ffmem.figures.saving import chart_script, picture
from ffmem.report.build import Report, build, numbers
from ffmem.report.verdicts import interval_text
from ffmem.store.digests import write_and_note
from ffmem.store.memory_page import cut
from ffmem.studies.study import Study


def write_report(study: Study) -> Path:
    """Write page, Markdown and numbers into the study's folder; the page's path."""
    report, folder = build(study), study.store.folder
    write_text(folder.report_page, html(report))
    write_text(folder.report_text, render("report.md.j2", report=report))
    text = json.dumps(numbers(report, study), indent=1, ensure_ascii=False) + "\n"
    write_text(folder.report_numbers, text)
    return folder.report_page


def html(report: Report) -> str:
    """The page, with its charts as pictures that its own script makes interactive."""
    pictures = {
        name: picture(figure.spec) for name, figure in report.figures.items() if not figure.is_empty
    }
    return render("report.html.j2", report=report, pictures=pictures, script=page_script())


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
