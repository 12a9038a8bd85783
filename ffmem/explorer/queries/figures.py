"""The figures of a study, as files and as charts that answer the mouse, and its report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import Any

from ffmem.analyses.analysis import Figure
from ffmem.analyses.catalogue import ANALYSES, claims_on
from ffmem.analyses.study import charts_of
from ffmem.analyses.verdicts import Verdict
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.compare import claims_by_name
from ffmem.figures.style import TITLE_SIZE
from ffmem.store.folder import read_text, study_file

ENDINGS = ("svg", "png", "csv", "json")

TITLE = re.compile(  # in a drawn SVG; panels have smaller ones
    rf'[^<]*<text[^>]*font-size="{TITLE_SIZE}px"[^>]*>(.*?)</text>', re.DOTALL
)
TITLE_ROLE, LONGEST_TITLE = "role-title-text", 2000  # characters that are looked at behind each


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
    claims: tuple[Verdict, ...]


def report_text(context: StudyContext, chapter: str | None = None) -> str | None:
    """The study's report, or a chapter of it; None where there is none."""
    folder = context.store.folder
    path = folder.report_page if chapter is None else folder.report_chapter(chapter)
    return read_text(folder, path) if path.exists() else None


def figure_files(context: StudyContext) -> tuple[FigureFile, ...]:
    """The figures that have been drawn, in the order of the analyses."""
    folder = context.store.folder
    names = [path.stem for path in folder.matching(folder.figure("*", "svg"))]
    found = [
        FigureFile(
            name,
            analysis_of(context, name),
            title_inside(study_file(folder, folder.figure(name, "svg"))),
        )
        for name in names
    ]
    order = {name: place for place, name in enumerate(context.study.names)}
    return tuple(sorted(found, key=lambda one: (order.get(one.analysis, len(order)), one.name)))


def title_inside(path: Path) -> str:
    """The title inside a drawn figure; its name as words where it has none."""
    return _title(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _title(path: Path, _changed: int) -> str:
    as_words = path.stem.replace("-", " ").capitalize()
    for place in path.read_text(encoding="utf-8", errors="replace").split(TITLE_ROLE)[1:]:
        if match := TITLE.match(place[:LONGEST_TITLE]):
            words = unescape(re.sub(r"<[^<>]*>", " ", match[1])).strip()
            return words or as_words
    return as_words


def figure_view(context: StudyContext, name: str) -> FigureView | None:
    """A figure's words; None where there is no such figure."""
    file = next((one for one in figure_files(context) if one.name == name), None)
    if file is None:
        return None
    heading = charts_of_analysis(context, file.analysis).get(name, {}).get("title", {})
    words = _figure_row(file)
    return FigureView(
        name=name,
        analysis=file.analysis,
        title=heading.get("text", file.title),
        caption=" ".join(heading.get("subtitle", ())),
        read="" if words is None else words.read,
        paper="" if words is None else words.paper,
        claims=claims_by_name(context, claims_on(name)),
    )


def _figure_row(file: FigureFile) -> Figure[Any] | None:
    """What an analysis says of one of its figures."""
    figures = ANALYSES[file.analysis].figures() if file.analysis in ANALYSES else ()
    return next((one for one in figures if one.name == file.name), None)


@lru_cache(maxsize=16)
def charts_of_analysis(context: StudyContext, name: str) -> dict[str, dict[str, Any]]:
    """The figures of one analysis as Vega-Lite specifications; none where it has no result."""
    if name not in context.study.names:
        return {}
    from ffmem.figures.saving import spec_of  # here: charts are slow to import

    study = context.study
    charts = charts_of(name, study.result(name), study.controls_of(name))
    return {figure: spec_of(chart) for figure, chart in charts.items()}


def analysis_of(context: StudyContext, figure: str) -> str:
    """The analysis whose name a figure's name begins with."""
    fits = [name for name in context.study.names if figure.startswith(name)]
    return max(fits, key=len, default=figure)


def figure_path(context: StudyContext, name: str, ending: str) -> Path | None:
    """The file of a figure, or None. Only names that were found in the folder are looked up."""
    known = any(figure.name == name for figure in figure_files(context))
    path = context.store.folder.figure(name, ending)
    if not known or ending not in ENDINGS or not path.is_file():
        return None
    return study_file(context.store.folder, path)
