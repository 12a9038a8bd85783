"""Output of commands: text on a terminal of any width, and results as files.

On a terminal: whole words, hanging indents, nothing read as markup or emoji; what a user wrote
(names, triggers, tokens) is printed as it is. As files: numbers in JSON, the figure beside them.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.errors import IN_NUMBERS, visible_token
from ffmem.store.folder import StudyFolder, write_whole
from ffmem.store.result_files import ResultFile, place_for, write_result

if TYPE_CHECKING:
    import altair
    from rich.console import Console
    from rich.text import Text

    from ffmem.analyses.predictive_values import PaperValue
    from ffmem.analyses.statistics import Interval
    from ffmem.report.verdicts import Outcome, Verdict

MARKS: dict[Outcome, tuple[str, str]] = {  # of a verdict: its sign and colour
    "holds": ("✓", "green"),
    "also without training": ("≈", "yellow"),
    "does not hold": ("✗", "red"),
    "undecided": ("?", "dim"),
}
GLUE = re.compile(rf"{IN_NUMBERS}|(?<=\S\[) (?=\S)")  # or begin a next token in brackets
CONTROL_CHARACTERS = dict.fromkeys(
    {*range(32), *range(127, 160)} - {9, 10}, "�"
)  # not for a terminal
SPACE, NO_BREAK = "\ufdd0", "\ufdd1"  # stand for spaces where no line may end; no text has them
NOUNS = {"rank": "median rank, % of the vocabulary", "change": "change"}  # by unit of the number


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
    """Write a chart to FOLDER/figures in every form, with its numbers; returns the PNG's path."""
    from ffmem.figures.saving import save  # here: charts are slow to import

    save(chart, StudyFolder(folder).figures, name)
    return StudyFolder(folder).figure(name, "png")


def save_result(
    folder: Path, name: str, result: Any, made_from: dict[str, Any], chart: altair.TopLevelMixin
) -> str:
    """Write numbers and figure into a scan's folder; returns a message about the files.

    If the folder has the result for other settings, they go to a folder of their own.
    """
    place = place_for(folder, name, made_from)
    numbers = save_numbers(place, name, result, made_from)
    return f"{numbers}, {save_figure(place, name, chart)}{other_place_note(place, folder)}"


def other_place_note(place: Path, folder: Path) -> str:
    """The reason why a result is not among the study's own."""
    return "" if place == folder else " (the study's own result has other settings and stays)"


def terminal() -> Console:
    """Standard output as a rich console without automatic markup or highlighting."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def say(text: str, err: bool = False) -> None:
    """Print sentences, wrapped at whole words on a terminal, else one per line."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None and stream.isatty():  # None where a shell has closed it
        fill = partial(
            textwrap.fill,
            width=shutil.get_terminal_size().columns,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(map(fill, GLUE.sub(SPACE, text).split("\n"))).replace(SPACE, " ")
    click.echo(text, err=err)


def print_hanging(console: Console, head: str | Text, body: str | Text, style: str = "") -> None:
    """Print `head` and `body` on a line; further lines begin below the body's first character.

    No line ends between a number and its % sign, inside an interval, or at the space that begins
    the next token of a trigger, as in `reported[ that]`.
    """
    from rich.text import Text

    line = Text.assemble(head)
    indent = line.cell_len
    text = Text(body, style=style) if isinstance(body, str) else body.copy()
    plain = text.plain.translate(CONTROL_CHARACTERS)
    text.plain = GLUE.sub(SPACE, plain).replace("\u00a0", NO_BREAK)
    parts = text.wrap(console, max(console.width - indent, 20))
    for number, part in enumerate(parts or [Text()]):
        part.rstrip()
        part.plain = part.plain.replace(SPACE, " ").replace(NO_BREAK, "\u00a0")
        console.print((line if number == 0 else Text(" " * indent)) + part, soft_wrap=True)


def print_parts(console: Console, head: str, parts: Sequence[str]) -> None:
    """Print `head`, then as many whole parts on each line as fit, one below the other."""
    indent, room = " " * len(head), console.width - len(head)
    line = ""
    for part in parts:
        if line and len(line) + 2 + len(part) > room:
            print_hanging(console, head, line)
            head, line = indent, ""
        line = f"{line}  {part}" if line else part
    print_hanging(console, head, line)


def print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def percent_text(found: Interval, scale: float = 1.0) -> str:
    """A number in percent, with its interval unless that has no width."""
    return interval_words(f"{scale * found.estimate:6.1f}", scale * found.low, scale * found.high)


def interval_words(number: str, low: float, high: float, digits: int = 0) -> str:
    """A number with its interval; without it if both ends print the same, as for one key."""
    ends = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return number if ends[0] == ends[1] else f"{number} ({ends[0]} .. {ends[1]})"


def token_words(tokens: Sequence[str], width: int) -> str:
    """As many tokens as fit into `width` characters, none of them cut."""
    line = ""
    for token in map(visible_token, tokens):
        longer = f"{line} {token}".strip()
        if len(longer) > width:
            break
        line = longer
    return line


def print_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Each claim in about two lines: its words, then number, control and paper; a tally last."""
    from ffmem.report.verdicts import tally

    for verdict in verdicts:
        mark, colour = MARKS[verdict.word]
        print_hanging(console, f"{mark} ", verdict.says)
        print_hanging(console, "  ", numbers_text(verdict, colour))
    console.print()
    print_hanging(console, "", tally(verdicts).text)


def numbers_text(verdict: Verdict, colour: str) -> Text:
    """A verdict with its reason, the deciding number and its name, the control, the paper's."""
    from rich.text import Text

    from ffmem.report.verdicts import interval_text

    word = f"{verdict.word} ({verdict.reason})" if verdict.reason else verdict.word
    parts = [f"paper: {paper_text(verdict)}"]
    if verdict.finding is not None:
        number = interval_text(verdict.finding.number, verdict.unit)
        parts.insert(0, f"{number} {NOUNS.get(verdict.unit, '')}".rstrip())
        if verdict.finding.control:
            control = interval_text(verdict.finding.control, verdict.unit, interval=False)
            parts.insert(1, f"control: {control} {verdict.finding.against}")
    return Text(word, style=colour).append("  " + "; ".join(parts), style="default")


def paper_text(verdict: Verdict) -> str:
    """The paper's finding, or the origin of a claim that is not the paper's."""
    names_source = verdict.source == "paper" or verdict.source in verdict.paper
    return verdict.paper if names_source else f"{verdict.paper} ({verdict.source})"


def print_paper_values(console: Console, values: Sequence[PaperValue]) -> None:
    """Print the paper's statements about its own values beside those of this checkpoint."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("the paper's own values", "paper", "here", ""):
        table.add_column(name)
    for value in values:
        word = Text("matches", "green") if value.matches else Text("differs", "red")
        table.add_row(value.says, value.expected, value.found, word)
    console.print()
    console.print(table)
    console.print(f"{sum(value.matches for value in values)} of {len(values)} match")
