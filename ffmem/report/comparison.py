"""Two or more studies side by side: the same claims, the same figures on the same scales."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.errors import FfmemError
from ffmem.figures.saving import picture
from ffmem.figures.style import INK, FigureText
from ffmem.report.build import SECTIONS, about, figure_texts, judge, page_script, render, write_text
from ffmem.report.verdicts import Verdict
from ffmem.studies.study import Study

PAGE, AXIS, LEAST = 950, 75, 200  # pixels: of a row, of what surrounds a chart, of a chart


@dataclass(frozen=True)
class Side:
    """One of the studies that are compared."""

    label: str
    about: dict[str, str]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class SharedFigure:
    """One figure of all studies that have it, drawn beside each other."""

    name: str
    title: str
    read: str
    paper: str
    captions: dict[str, str]  # by label
    spec: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What a comparison says; the template only sets it in type."""

    sides: tuple[Side, ...]
    figures: tuple[SharedFigure, ...]

    @property
    def claims(self) -> list[tuple[Verdict, ...]]:
        """The verdicts of every claim, one a study."""
        return list(zip(*(side.verdicts for side in self.sides), strict=True))


def compare(studies: Sequence[Study]) -> Comparison:
    """Put studies side by side, in the order given."""
    if len(studies) < 2:
        raise FfmemError("a comparison needs two studies; name their folders")
    labels = distinct_labels(studies)
    sides = tuple(
        Side(label, about(study), tuple(judge(study)))
        for label, study in zip(labels, studies, strict=True)
    )
    figures = [
        shared_figure(words, dict(zip(labels, studies, strict=True)))
        for section in SECTIONS
        for words in figure_texts(section)
        if sum(words.figure in study.charts for study in studies) > 1
    ]
    return Comparison(sides, tuple(figures))


def distinct_labels(studies: Sequence[Study]) -> list[str]:
    """The models' names, or with the folders' where models are the same."""
    names = [Path(study.model_name).name for study in studies]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({study.folder.name})" for name, study in zip(names, studies, strict=True)]


def shared_figure(words: FigureText, studies: dict[str, Study]) -> SharedFigure:
    """One figure of several studies on one scale, each under its study's name."""
    specs, captions, title = [], {}, ""
    for label, study in studies.items():
        if words.figure not in study.charts:
            continue
        spec = copy.deepcopy(study.chart(words.figure).to_dict())
        title = spec["title"]["text"]
        captions[label] = " ".join(spec["title"]["subtitle"])
        specs.append(spec | {"title": {"text": label, "anchor": "start", "color": INK}})
    return SharedFigure(words.figure, title, words.read, words.paper, captions, side_by_side(specs))


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


def write_comparison(studies: Sequence[Study], path: Path) -> Path:
    """Write the comparison as one page that opens offline."""
    comparison = compare(studies)
    pictures = {figure.name: picture(figure.spec) for figure in comparison.figures}
    page = render("compare.html.j2", comparison=comparison, pictures=pictures, script=page_script())
    write_text(path, page)
    return path
