"""The figures of a study, as files and as charts that answer the mouse, and its report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import Any

from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.compare import ClaimComparison, claims_by_name
from ffmem.figures.style import TITLE_SIZE, FigureText
from ffmem.studies.registry import ANALYSES
from ffmem.studies.study import charts_of

ENDINGS = ("svg", "png", "csv", "json")
OWN_SCRIPT = re.compile(r"sha256-[A-Za-z0-9+/=]+")  # in the policy that a report carries


TITLE = re.compile(  # in a drawn SVG; panels have smaller ones
    rf'role-title-text[^<]*<text[^>]*font-size="{TITLE_SIZE}px"[^>]*>(.*?)</text>', re.DOTALL
)


@dataclass(frozen=True)
class FigureFile:
    """A figure by its name, with the analysis that it belongs to and the title inside it."""

    name: str
    analysis: str
    title: str


@dataclass(frozen=True)
class FigureView:
    """A figure with its words: what it shows, how to read it, the paper, the claims it decides."""

    name: str
    analysis: str
    title: str
    caption: str
    read: str
    paper: str
    claims: tuple[ClaimComparison, ...]


@dataclass(frozen=True)
class ReportFile:
    """A report, and what the browser may do with it: run the script that it was written with."""

    page: str
    policy: str


def report_file(context: StudyContext) -> ReportFile | None:
    """The study's report, or None where none was written."""
    path = context.store.folder.report_page
    if not path.is_file():
        return None
    page = path.read_text(encoding="utf-8")
    script = OWN_SCRIPT.search(page, 0, page.find("</head>"))
    return ReportFile(
        page,
        f"default-src 'none'; script-src '{script[0] if script else 'none'}'; "
        "style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'none'; base-uri 'none'",
    )


def figure_files(context: StudyContext) -> tuple[FigureFile, ...]:
    """The figures that have been drawn, in the order of the analyses."""
    folder = context.store.folder
    names = [path.stem for path in folder.matching(folder.figure("*", "svg"))]
    found = [
        FigureFile(name, analysis_of(context, name), title_inside(folder.figure(name, "svg")))
        for name in names
    ]
    order = {name: place for place, name in enumerate(context.study.names)}
    return tuple(sorted(found, key=lambda one: (order.get(one.analysis, len(order)), one.name)))


def title_inside(path: Path) -> str:
    """The title inside a drawn figure; its name as words where it has none."""
    return _title(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _title(path: Path, _changed: int) -> str:
    match = TITLE.search(path.read_text(encoding="utf-8", errors="replace"))
    words = "" if match is None else unescape(re.sub(r"<[^>]*>", " ", match[1])).strip()
    return words or path.stem.replace("-", " ").capitalize()


def figure_view(context: StudyContext, name: str) -> FigureView | None:
    """A figure's words; None where there is no such figure."""
    file = next((one for one in figure_files(context) if one.name == name), None)
    if file is None:
        return None
    heading = charts_of_analysis(context, file.analysis).get(name, {}).get("title", {})
    words = figure_words(file)
    return FigureView(
        name=name,
        analysis=file.analysis,
        title=heading.get("text", file.title),
        caption=" ".join(heading.get("subtitle", ())),
        read="" if words is None else words.read,
        paper="" if words is None else words.paper,
        claims=() if words is None else claims_by_name(context, words.claims),
    )


def figure_words(file: FigureFile) -> FigureText | None:
    """The text that belongs to a figure."""
    figures = ANALYSES[file.analysis].figures if file.analysis in ANALYSES else None
    texts: Sequence[FigureText] = figures().texts if figures is not None else ()
    return next((text for text in texts if text.figure == file.name), None)


def figures_of_claims() -> dict[str, str]:
    """The first figure that shows each claim, by the claim's name."""
    found: dict[str, str] = {}
    for row in ANALYSES.values():
        for text in row.figures().texts if row.figures is not None else ():
            for claim in text.claims:
                found.setdefault(claim, text.figure)
    return found


@lru_cache(maxsize=16)
def charts_of_analysis(context: StudyContext, name: str) -> dict[str, dict[str, Any]]:
    """The figures of one analysis as Vega-Lite specifications; none where it has no result."""
    if name not in context.study.names:
        return {}
    from ffmem.figures.saving import spec_of  # here: charts are slow to import

    charts = charts_of(name, context.study.result(name))
    return {figure: spec_of(chart) for figure, chart in charts.items()}


def analysis_of(context: StudyContext, figure: str) -> str:
    """The analysis whose name a figure's name begins with."""
    fits = [name for name in context.study.names if figure.startswith(name)]
    return max(fits, key=len, default=figure)


def figure_path(context: StudyContext, name: str, ending: str) -> Path | None:
    """The file of a figure, or None. Only names that were found in the folder are looked up."""
    known = any(figure.name == name for figure in figure_files(context))
    path = context.store.folder.figure(name, ending)
    return path if known and ending in ENDINGS and path.is_file() else None
