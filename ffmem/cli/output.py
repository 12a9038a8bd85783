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

from ffmem.analyses.result_files import ResultFile, write_result
from ffmem.errors import IN_NUMBERS
from ffmem.records import json_text
from ffmem.store.folder import StudyFolder
from ffmem.text import visible_token

if TYPE_CHECKING:
    import altair
    from rich.console import Console
    from rich.text import Text

    from ffmem.analyses.statistics import Interval
    from ffmem.analyses.values.record import PaperValue

GLUE = re.compile(rf"{IN_NUMBERS}|(?<=\S\[) (?=\S)")  # or begin a next token in brackets
CONTROL_CHARACTERS = dict.fromkeys(
    {*range(32), *range(127, 160)} - {9, 10}, "�"
)  # not for a terminal
CONTROL_ESCAPES = {code: f"\\u{code:04x}" for code in range(127, 160)}  # JSON has the others
SPACE, NO_BREAK = "\ufdd0", "\ufdd1"  # stand for spaces where no line may end; no text has them


def save_numbers(
    folder: Path, name: str, result: Any, made_from: dict[str, Any] | None = None
) -> Path:
    """Write a result dataclass to FOLDER/analyses/NAME.json, whole or not at all."""
    path = StudyFolder(folder).result(name)
    write_result(path, ResultFile(name, made_from or {}, 0.0, result))
    return path


def save_figure(folder: Path, name: str, chart: altair.TopLevelMixin) -> Path:
    """Write a chart to FOLDER/figures in every form, with its numbers; returns the PNG's path."""
    from ffmem.figures.saving import save  # here: charts are slow to import

    save(chart, StudyFolder(folder).figures, name)
    return StudyFolder(folder).figure(name, "png")


def print_json(record: Any) -> None:
    """Print a record, or a dict of them, for machines."""
    click.echo(json_text(record).translate(CONTROL_ESCAPES), nl=False)


def terminal() -> Console:
    """Standard output as a rich console without automatic markup or highlighting.

    Whatever is printed, no control character of it reaches the terminal: names and tokens of a
    study can be anybody's.
    """
    from rich.console import Console
    from rich.text import Text

    class SafeConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*map(printable, objects), **options)

    def printable(one: Any) -> Any:
        if isinstance(one, str):
            return one.translate(CONTROL_CHARACTERS)
        if isinstance(one, Text):
            one = one.copy()
            one.plain = one.plain.translate(CONTROL_CHARACTERS)
        return one

    return SafeConsole(highlight=False, markup=False, emoji=False)


def say(text: str, err: bool = False) -> None:
    """Print sentences, wrapped at whole words on a terminal, else one per line."""
    text = text.translate(CONTROL_CHARACTERS)
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
    text.plain = GLUE.sub(SPACE, text.plain).replace("\u00a0", NO_BREAK)
    parts = text.wrap(console, max(console.width - indent, 20))
    for number, part in enumerate(parts or [Text()]):
        part.rstrip()
        part.plain = part.plain.replace(SPACE, " ").replace(NO_BREAK, "\u00a0")
        console.print((line if number == 0 else Text(" " * indent)) + part, soft_wrap=True)


def print_text_read(console: Console, model: str, tokens: int, text: str) -> None:
    """What a model has read: how many tokens, and the end of the text in quotes."""
    width = max(console.width - len(model) - 30, 30)
    shown = repr(text) if len(text) <= width else "…" + repr(text[-width:])
    plural = "token" if tokens == 1 else "tokens"
    print_hanging(console, "", f"{model} has read {tokens} {plural}: {shown}")


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
        click.echo("  ".join(cells).rstrip().translate(CONTROL_CHARACTERS))


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
