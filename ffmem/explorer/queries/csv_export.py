"""Answers as tables that a spreadsheet can open."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run text that begins so


def as_csv(rows: Sequence[Any]) -> str:
    """Dataclasses as CSV, a column a field; lists are joined by spaces."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end as the format wants, so that breaks in text are quoted
    for number, row in enumerate(rows):
        if not is_dataclass(row) or isinstance(row, type):
            raise TypeError(f"{row!r} is no dataclass")
        fields = asdict(row)
        if number == 0:
            writer.writerow(fields)
        writer.writerow([cell(value) for value in fields.values()])
    return text.getvalue()


def cell(value: Any) -> Any:
    """One value; text that would be run as a formula gets an apostrophe in front."""
    if isinstance(value, list | tuple):
        value = " ".join(str(part) for part in value)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
