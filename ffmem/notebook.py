"""Tables in HTML, as a notebook shows the results of Python calls."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table with a line of column titles; all words are plain text."""
    return f"<table>{_line(columns, 'th')}{''.join(_line(row, 'td') for row in rows)}</table>"


def _line(words: Iterable[str], cell: str) -> str:
    cells = (f"<{cell} style='text-align:left'>{escape(word)}</{cell}>" for word in words)
    return f"<tr>{''.join(cells)}</tr>"
