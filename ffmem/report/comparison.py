"""Two or more studies side by side: the same claims, the same figures on the same scales."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ffmem.analyses.verdicts import Tally, Verdict, tally
from ffmem.errors import FfmemError
from ffmem.files.whole_files import prepare_target

PAGE, AXIS, LEAST = 950, 75, 200  # pixels: of a row, of what surrounds a chart, of a chart


@dataclass(frozen=True)
class DrawnFigure:
    """A chart without its heading, which the page sets in its own type."""

    name: str
    title: str
    caption: str
    read: str
    paper: str
    claims: tuple[str, ...]  # that it shows, by name
    spec: dict[str, Any]

    @property
    def is_empty(self) -> bool:
        """Whether no point has enough cases to be drawn; the caption says so."""
        from ffmem.figures.style import draws_nothing

        return draws_nothing(self.spec)


class NamedStudy(Protocol):
    """The parts of a study's label."""

    @property
    def model_name(self) -> str:
        """The model that was studied."""

    @property
    def folder(self) -> Path:
        """The study's folder."""


@dataclass(frozen=True)
class StudySummary:
    """The comparable content of a study's report."""

    model_name: str
    folder: Path
    about: dict[str, str]
    verdicts: tuple[Verdict, ...]
    figures: tuple[DrawnFigure, ...]


@dataclass(frozen=True)
class Side:
    """One of the studies that are compared, with its verdict on every claim of the paper."""

    label: str
    about: dict[str, str]
    tally: Tally
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class SharedFigure:
    """The words of one figure of all studies that have it, drawn beside each other."""

    name: str
    title: str
    read: str
    paper: str
    captions: dict[str, str]  # by label


@dataclass(frozen=True)
class Comparison:
    """Studies side by side, in the order given; `shared_charts` draws the figures."""

    studies: tuple[Side, ...]
    figures: tuple[SharedFigure, ...]

    @property
    def claims(self) -> list[tuple[Verdict, ...]]:
        """The verdicts of every claim, one per study."""
        return list(zip(*(side.verdicts for side in self.studies), strict=True))


def compare(studies: Sequence[StudySummary]) -> Comparison:
    """Put studies side by side, in the order given."""
    if len(studies) < 2:
        raise FfmemError("a comparison needs two studies; name their folders")
    sides = tuple(
        Side(label, study.about, tally(study.verdicts), study.verdicts)
        for label, study in zip(distinct_labels(studies), studies, strict=True)
    )
    return Comparison(sides, tuple(map(_words, _shared(studies))))


def shared_charts(studies: Sequence[StudySummary]) -> dict[str, dict[str, Any]]:
    """Every figure of several studies as one chart on one scale, by name."""
    return {drawn[0][1].name: _chart(drawn) for drawn in _shared(studies)}


def _shared(studies: Sequence[StudySummary]) -> list[list[tuple[str, DrawnFigure]]]:
    """Each figure that at least two of the studies have, with their labels."""
    by_name: dict[str, list[tuple[str, DrawnFigure]]] = {}
    for label, study in zip(distinct_labels(studies), studies, strict=True):
        for figure in study.figures:
            by_name.setdefault(figure.name, []).append((label, figure))
    return [drawn for drawn in by_name.values() if len(drawn) > 1]


def _words(drawn: Sequence[tuple[str, DrawnFigure]]) -> SharedFigure:
    captions, first = {label: figure.caption for label, figure in drawn}, drawn[0][1]
    return SharedFigure(first.name, first.title, first.read, first.paper, captions)


def _chart(drawn: Sequence[tuple[str, DrawnFigure]]) -> dict[str, Any]:
    from ffmem.figures.style import INK

    return side_by_side(
        [
            copy.deepcopy(figure.spec) | {"title": {"text": label, "anchor": "start", "color": INK}}
            for label, figure in drawn
        ]
    )


def distinct_labels(studies: Sequence[NamedStudy]) -> list[str]:
    """The models' names, or with the folders' where models are the same."""
    names = [Path(study.model_name).name for study in studies]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({study.folder.name})" for name, study in zip(names, studies, strict=True)]


def side_by_side(specs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Specs as one chart with shared scales; what belongs to the top level moves there."""
    top = ("$schema", "config", "background", "datasets")
    room = PAGE // len(specs) - AXIS
    for spec in specs:
        if "width" in spec:
            spec["width"] = max(min(spec["width"], room), LEAST)
    return {
        "$schema": specs[0]["$schema"],
        "config": specs[0].get("config", {}),
        "background": "transparent",
        "datasets": {
            name: rows for spec in specs for name, rows in spec.get("datasets", {}).items()
        },
        "hconcat": [{k: v for k, v in spec.items() if k not in top} for spec in specs],
        "resolve": {"scale": {"x": "independent", "y": "shared", "color": "independent"}},
    }


def write_comparison(studies: Sequence[StudySummary], path: Path) -> Path:
    """Write the comparison as one page that opens offline; a bad path is refused at once."""
    from ffmem.figures.saving import picture
    from ffmem.files.whole_files import write_text
    from ffmem.report.rendering import page_script, render

    prepare_target(path)
    charts = shared_charts(studies)
    page = render(
        "compare.html.j2",
        comparison=compare(studies),
        charts=charts,
        pictures={name: picture(spec) for name, spec in charts.items()},
        script=page_script(),
    )
    write_text(path, page)
    return path
