"""Results of commands as files: numbers in JSON, the figure beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffmem.store.folder import StudyFolder, write_whole
from ffmem.store.result_files import ResultFile, place_for, write_result

if TYPE_CHECKING:
    import altair
if TYPE_CHECKING:
    from rich.console import Console

    from ffmem.analyses.paper_values import PaperValue
    from ffmem.report.verdicts import Verdict


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


STYLES = {"holds": "green", "does not hold": "red", "not measured": "dim"}


def print_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Each claim, its number in the paper and here, the control, and whether it holds."""
    from rich.table import Table

    from ffmem.report.verdicts import interval_text

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, ratio in (("claim", 5), ("paper", 3), ("here (95 %)", 4), ("control", 4)):
        table.add_column(name, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    for verdict in verdicts:
        found = verdict.finding
        control = ""
        if found and found.control:
            control = (
                f"{interval_text(found.control, verdict.unit, interval=False)} {found.against}"
            )
        table.add_row(
            verdict.says,
            verdict.paper,
            interval_text(found.number, verdict.unit) if found else "–",
            control,
            f"[{STYLES[verdict.word]}]{verdict.word}[/]",
        )
    console.print(table)


def print_paper_values(console: Console, values: Sequence[PaperValue]) -> None:
    """What the paper says of its own values beside what is so in this checkpoint."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("the paper's own values", "paper", "here", ""):
        table.add_column(name)
    for value in values:
        word = "[green]matches[/]" if value.matches else "[red]differs[/]"
        table.add_row(value.says, value.expected, escape(value.found), word)
    console.print()
    console.print(table)
    console.print(f"{sum(value.matches for value in values)} of {len(values)} match")
