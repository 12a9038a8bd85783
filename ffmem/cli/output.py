"""Results of commands as files: numbers in JSON, the figure beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffmem.store.folder import StudyFolder, write_whole
from ffmem.store.result_files import ResultFile, place_for, write_result

if TYPE_CHECKING:
    import altair


def save_numbers(
    folder: Path, name: str, result: Any, made_from: dict[str, Any] | None = None
) -> Path:
    """Write a result dataclass to FOLDER/analyses/NAME.json, whole or not at all."""
    path = StudyFolder(folder).result(name)
    write_result(path, ResultFile(name, made_from or {}, 0.0, result))
    return path


def save_text(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def save_figure(folder: Path, name: str, chart: altair.TopLevelMixin) -> Path:
    """Write a chart to FOLDER/figures in every form, with its numbers; the PNG's path."""
    from ffmem.figures.saving import save  # here: charts are slow to import

    save(chart, StudyFolder(folder).figures, name)
    return StudyFolder(folder).figure(name, "png")


def save_result(
    folder: Path, name: str, result: Any, made_from: dict[str, Any], chart: altair.TopLevelMixin
) -> str:
    """Leave numbers and figure in a scan's folder; what was written, in words.

    Where the folder has the result for other settings, they go beside it.
    """
    place = place_for(folder, name, made_from)
    numbers = save_numbers(place, name, result, made_from)
    return f"{numbers}, {save_figure(place, name, chart)}{beside_note(place, folder)}"


def beside_note(place: Path, folder: Path) -> str:
    """Why a result is not among the study's own."""
    return "" if place == folder else " (the study's own result has other settings and stays)"
