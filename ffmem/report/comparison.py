"""Two or more studies side by side: the same claims, the same figures on the same scales.

A study's side is read from what its report left (`numbers.json`), which needs neither torch nor the
analyses; where the report is older than the results, it is made from the results. What draws and
what fills pages is imported by those who ask for it: claims alone are compared in half a second.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ffmem.errors import FfmemError
from ffmem.report.verdicts import Verdict
from ffmem.store.folder import StudyFolder, prepare_target
from ffmem.store.result_files import restore
from ffmem.store.scan_store import ScanStore
from ffmem.version import VERSION

PAGE, AXIS, LEAST = 950, 75, 200  # pixels: of a row, of what surrounds a chart, of a chart


@dataclass(frozen=True)
class Figure:
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
    figures: tuple[Figure, ...]


def summary_of(store: ScanStore, figures: bool = True) -> StudySummary:
    """A study's side of a comparison: as its report was written, or made now.

    Without `figures` it has the claims alone, which is quicker.
    """
    found = read_summary(store, figures)
    if found is not None:
        return found
    from ffmem.report.build import summarise  # here: analyses import torch, which is slow
    from ffmem.studies.study import Study

    return summarise(Study(store), figures)


def read_summary(store: ScanStore, figures: bool = True) -> StudySummary | None:
    """The report's numbers; None if missing, damaged or older than the results."""
    try:
        data = json.loads(store.folder.report_numbers.read_text(encoding="utf-8"))
        if data["made_from"] != source_digests(store.folder):
            return None
        claims = [verdict_fields(claim) for claim in data["claims"].values()]
        verdicts = restore(tuple[Verdict, ...], claims)
        drawn = restore(tuple[Figure, ...], data["figures"] if figures else [])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    name, folder = store.manifest.key.model["name"], store.folder.root
    return StudySummary(name, folder, data["about"], verdicts, drawn)


def verdict_fields(claim: dict[str, Any]) -> dict[str, Any]:
    """A claim of the file of numbers with the fields of a verdict; there it names its stage."""
    found = {name: value for name, value in claim.items() if name != "verdict"}
    return {"analysis" if name == "stage" else name: value for name, value in found.items()}


def source_digests(folder: StudyFolder) -> dict[str, str]:
    """Digests of all that a report is made from: scan, results, those of the untrained twin."""
    results = (path for one in (folder, folder.control) for path in one.matching(one.result("*")))
    files = (folder.manifest, *results)
    digests = {folder.name(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {"ffmem": VERSION, **digests}


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
    """The content of a comparison; the template only renders it."""

    sides: tuple[Side, ...]
    figures: tuple[SharedFigure, ...]

    @property
    def claims(self) -> list[tuple[Verdict, ...]]:
        """The verdicts of every claim, one per study."""
        return list(zip(*(side.verdicts for side in self.sides), strict=True))


def compare(studies: Sequence[StudySummary]) -> Comparison:
    """Put studies side by side, in the order given."""
    if len(studies) < 2:
        raise FfmemError("a comparison needs two studies; name their folders")
    labels = distinct_labels(studies)
    sides = tuple(
        Side(label, study.about, study.verdicts)
        for label, study in zip(labels, studies, strict=True)
    )
    by_name: dict[str, list[tuple[str, Figure]]] = {}
    for label, study in zip(labels, studies, strict=True):
        for figure in study.figures:
            by_name.setdefault(figure.name, []).append((label, figure))
    return Comparison(
        sides, tuple(shared_figure(drawn) for drawn in by_name.values() if len(drawn) > 1)
    )


def distinct_labels(studies: Sequence[NamedStudy]) -> list[str]:
    """The models' names, or with the folders' where models are the same."""
    names = [Path(study.model_name).name for study in studies]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({study.folder.name})" for name, study in zip(names, studies, strict=True)]


def shared_figure(drawn: Sequence[tuple[str, Figure]]) -> SharedFigure:
    """One figure of several studies on one scale, each under its study's label."""
    from ffmem.figures.style import INK

    specs = [
        copy.deepcopy(figure.spec) | {"title": {"text": label, "anchor": "start", "color": INK}}
        for label, figure in drawn
    ]
    captions = {label: figure.caption for label, figure in drawn}
    first = drawn[0][1]
    return SharedFigure(
        first.name, first.title, first.read, first.paper, captions, side_by_side(specs)
    )


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
    from ffmem.report.rendering import page_script, render, write_text

    prepare_target(path)
    comparison = compare(studies)
    pictures = {figure.name: picture(figure.spec) for figure in comparison.figures}
    page = render("compare.html.j2", comparison=comparison, pictures=pictures, script=page_script())
    write_text(path, page)
    return path
