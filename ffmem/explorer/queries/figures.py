"""The figures of a study, as files and as charts that answer the mouse, and its report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ffmem.explorer.context import StudyContext

ENDINGS = ("svg", "png", "csv", "json")
OWN_SCRIPT = re.compile(r"sha256-[A-Za-z0-9+/=]+")  # in the policy that a report carries


@dataclass(frozen=True)
class FigureFile:
    """A figure by its name, with the analysis that it belongs to."""

    name: str
    analysis: str

    @property
    def title(self) -> str:
        """The name as words."""
        return self.name.replace("-", " ").capitalize()


@dataclass(frozen=True)
class ReportFile:
    """A report, and what the browser may do with it: run the script that it was written with."""

    page: str
    policy: str


def report_file(explored: StudyContext) -> ReportFile | None:
    """The study's report, or None where none was written."""
    path = explored.store.folder.report_page
    if not path.is_file():
        return None
    page = path.read_text(encoding="utf-8")
    script = OWN_SCRIPT.search(page, 0, page.find("</head>"))
    return ReportFile(
        page,
        f"default-src 'none'; script-src '{script[0] if script else 'none'}'; "
        "style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'none'; base-uri 'none'",
    )


def figure_files(explored: StudyContext) -> tuple[FigureFile, ...]:
    """The figures that have been drawn, in the order of the analyses."""
    folder = explored.store.folder
    names = [path.stem for path in folder.matching(folder.figure("*", "svg"))]
    found = [FigureFile(name, analysis_of(explored, name)) for name in names]
    order = {name: place for place, name in enumerate(explored.study.names)}
    return tuple(sorted(found, key=lambda one: (order.get(one.analysis, len(order)), one.name)))


def analysis_of(explored: StudyContext, figure: str) -> str:
    """The analysis whose name a figure's name begins with."""
    fits = [name for name in explored.study.names if figure.startswith(name)]
    return max(fits, key=len, default=figure)


def figure_path(explored: StudyContext, name: str, ending: str) -> Path | None:
    """The file of a figure, or None. Only names that were found in the folder are looked up."""
    known = any(figure.name == name for figure in figure_files(explored))
    path = explored.store.folder.figure(name, ending)
    return path if known and ending in ENDINGS and path.is_file() else None
