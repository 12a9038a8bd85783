"""The figures of a study, as files in its folder and as charts that answer the mouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ffmem.explorer.context import StudyContext

ENDINGS = ("svg", "png", "csv", "json")


@dataclass(frozen=True)
class FigureFile:
    """A figure by its name, with the analysis that it belongs to."""

    name: str
    analysis: str

    @property
    def title(self) -> str:
        """The name as words."""
        return self.name.replace("-", " ").capitalize()


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
