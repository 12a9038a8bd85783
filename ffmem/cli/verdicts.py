"""The table of claims on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ffmem.report.verdicts import Verdict

STYLES = {"holds": "green", "does not hold": "red", "not measured": "dim"}


def print_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Each claim, its number in the paper and here, the control, and whether it holds."""
    from rich.table import Table

    from ffmem.report.verdicts import shown

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, ratio in (("claim", 5), ("paper", 3), ("here (95 %)", 4), ("control", 4)):
        table.add_column(name, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    for verdict in verdicts:
        found = verdict.finding
        control = ""
        if found and found.control:
            control = f"{shown(found.control, verdict.unit, interval=False)} {found.against}"
        table.add_row(
            verdict.says,
            verdict.paper,
            shown(found.number, verdict.unit) if found else "–",
            control,
            f"[{STYLES[verdict.word]}]{verdict.word}[/]",
        )
    console.print(table)
