"""What language models said of the demo's triggers and last-layer cases, which they read blind.

The sheets were drawn from a study of the embedded model, from the same model with the entries of
each weight tensor permuted, and from random prefixes; they were mixed, so that nothing told the
reader which was which. The readers are large language models. They are not people.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ffmem.analyses.last_layer.record import Judgement
from ffmem.demo import READINGS
from ffmem.store.people.annotators import READ_BLIND

Source = Literal["demo", "permuted"]  # the model that a sheet was drawn from
READER, SECOND = "reader-a", "reader-b"  # the one who read everything, the other a part


@dataclass(frozen=True)
class ReadPattern:
    """A pattern that a reader named, and the numbers of the prefixes that have it, from 1."""

    description: str
    kind: Literal["shallow", "semantic"]
    prefixes: tuple[int, ...]


@dataclass(frozen=True)
class ReadSheet:
    """The prefixes of a key, or of a control key, and what each reader saw in them."""

    model: Source
    layer: int
    key: str | None  # None for a control key
    control: str | None  # "random" or "matched", or None for a real key
    prefixes: tuple[str, ...]
    answers: dict[str, tuple[ReadPattern, ...]]  # by reader


@dataclass(frozen=True)
class ReadCase:
    """A change of the last layer, or a control with another prefix's old token."""

    prefix: str
    old: str
    new: str
    control: bool
    answers: dict[str, Judgement]  # by reader


def reader_name(reader: str) -> str:
    """The annotator's name of a reader: it says what it is."""
    return f"{READ_BLIND} ({reader})"


@cache
def read_sheets() -> tuple[ReadSheet, ...]:
    """All sheets that were read."""
    return tuple(
        ReadSheet(
            model=row["model"],
            layer=row["layer"],
            key=row["key"],
            control=row["control"],
            prefixes=tuple(before + last for before, last in row["prefixes"]),
            answers={
                reader: tuple(
                    ReadPattern(one["description"], one["class"], tuple(one["prefixes"]))
                    for one in answer["patterns"]
                )
                for reader, answer in row["answers"].items()
            },
        )
        for row in _rows("sheets")
    )


@cache
def read_cases() -> tuple[ReadCase, ...]:
    """All cases that were judged."""
    return tuple(
        ReadCase(row["prefix"], row["old"], row["new"], row["control"], row["answers"])
        for row in _rows("cases")
    )


def _rows(name: str) -> list[dict[str, Any]]:
    with lzma.open(READINGS / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
