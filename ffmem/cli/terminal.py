"""Text on a terminal of any width: whole words, hanging indents, nothing read as markup or emoji.

What a user wrote (names, triggers, tokens) is printed as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ffmem.analyses.inputs.paper_values import PaperValue
    from ffmem.report.verdicts import Outcome, Verdict

MARKS: dict[Outcome, tuple[str, str]] = {  # of a verdict: its sign and colour
    "holds": ("✓", "green"),
    "also without training": ("≈", "yellow"),
    "does not hold": ("✗", "red"),
    "undecided": ("?", "dim"),
}
NOUNS = {"rank": "median rank, % of the vocabulary", "change": "change"}  # by unit of the number


def terminal() -> Console:
    """Standard output as a terminal that styles only what it is told to."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_hanging(console: Console, head: str | Text, body: str | Text, style: str = "") -> None:
    """Print `head` and `body` on a line; further lines begin below the body's first character."""
    from rich.text import Text

    line = Text.assemble(head)
    indent = line.cell_len
    text = Text(body, style=style) if isinstance(body, str) else body
    parts = text.wrap(console, max(console.width - indent, 20))
    for number, part in enumerate(parts or [Text()]):
        part.rstrip()
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


def visible_token(token: str) -> str:
    """A token with its spaces and control characters visible."""
    return repr(token)[1:-1].replace(" ", "·") or "∅"


def token_words(tokens: Sequence[str], width: int) -> str:
    """As many tokens as fit into so many characters, none of them cut."""
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
    """A verdict, why, and the number that decides it, what it is, its control, the paper's."""
    from rich.text import Text

    from ffmem.report.verdicts import interval_text

    word = f"{verdict.word} ({verdict.reason})" if verdict.reason else verdict.word
    paper = verdict.paper if verdict.source == "paper" else f"{verdict.paper} ({verdict.source})"
    parts = [f"paper: {paper}"]
    if verdict.finding is not None:
        number = interval_text(verdict.finding.number, verdict.unit)
        parts.insert(0, f"{number} {NOUNS.get(verdict.unit, '')}".rstrip())
        if verdict.finding.control:
            control = interval_text(verdict.finding.control, verdict.unit, interval=False)
            parts.insert(1, f"control: {control} {verdict.finding.against}")
    return Text(word, style=colour).append("  " + "; ".join(parts), style="default")


def print_paper_values(console: Console, values: Sequence[PaperValue]) -> None:
    """What the paper says of its own values beside what is so in this checkpoint."""
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
