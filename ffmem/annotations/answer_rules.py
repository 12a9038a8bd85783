"""The rules of a valid answer to a sheet, the same on sheets, in the browser and for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

from ffmem.analyses.patterns.record import MIN_TRIGGERS, PATTERN_KINDS
from ffmem.annotations.sheets import PatternAnswer, Sheet
from ffmem.errors import FfmemError, shorten
from ffmem.store.people.annotators import RULES
from ffmem.text import UNSEEN

Field = Literal["description", "class", "prefixes"]
LONGEST_DESCRIPTION = 500  # characters
LONGEST_NAME = 80
NAME_PATTERN = rf"^(?!\s*{RULES}\s*$)[^{UNSEEN}]*[^\s{UNSEEN}][^{UNSEEN}]*$"
DESCRIPTION_PATTERN = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an answer; patterns are numbered from 1."""

    pattern: int
    field: Field
    message: str


def check(answers: Sequence[PatternAnswer], sheet: Sheet) -> list[Fault]:
    """The faults of an answer to a sheet: at most one per field, in order."""
    faults: list[Fault] = []
    earlier: set[str] = set()
    for number, answer in enumerate(answers, 1):
        messages: dict[Field, str | None] = {
            "description": _description_fault(answer.description, earlier),
            "class": _class_fault(answer.kind),
            "prefixes": _prefixes_fault(answer.ranks, len(sheet.prefixes)),
        }
        faults += [Fault(number, field, text) for field, text in messages.items() if text]
        earlier.add(_fold(answer.description))
    return faults


def normalise(answer: PatternAnswer) -> PatternAnswer:
    """A valid answer in the one form that is saved: spaces evened, prefixes in order."""
    description = " ".join(answer.description.split())
    return PatternAnswer(description, answer.kind, tuple(sorted(answer.ranks)))


def _fold(description: str) -> str:
    return " ".join(description.casefold().split())


def _description_fault(description: str, earlier: Container[str]) -> str | None:
    if not description.strip():
        return "the description is empty; say in a few words what the prefixes share"
    if len(description) > LONGEST_DESCRIPTION:
        return (
            f"the description has {len(description)} characters; use at most {LONGEST_DESCRIPTION}"
        )
    if not _can_be_saved(description):
        return "the description has a character that cannot be saved; type it again"
    if not re.search(r"\w", description):
        return (
            f"{shorten(description)!r} is not a description; say in words what the prefixes share"
        )
    if _fold(description) in earlier:
        return "this description was given before; join the two patterns or reword it"
    return None


def _class_fault(kind: str) -> str | None:
    if kind in PATTERN_KINDS:
        return None
    what = f"is {shorten(kind)!r}" if kind else "is empty"
    return f"the class {what}; write {' or '.join(PATTERN_KINDS)}, and for both make two patterns"


def _prefixes_fault(ranks: Sequence[int], prefixes: int) -> str | None:
    for rank in ranks:
        if not 1 <= rank <= prefixes:
            return f"{shorten(str(rank))} is not among the prefixes 1 to {prefixes}; change it"
    for rank, times in Counter(ranks).items():
        if times > 1:
            return f"prefix {rank} is named twice; name it once"
    if len(ranks) < MIN_TRIGGERS:
        return (
            f"a pattern needs {MIN_TRIGGERS} different prefixes and this has {len(ranks)}; "
            "name more or drop the pattern"
        )
    return None


def check_name(annotator: str) -> str:
    """An annotator's name, or one sentence why it is not one."""
    name = " ".join(annotator.split())
    if name == RULES:
        raise FfmemError(f"the name {name!r} is for answers by program; give another")
    if len(name) > LONGEST_NAME or not re.fullmatch(NAME_PATTERN, annotator):
        raise FfmemError(
            f"an annotator's name has 1 to {LONGEST_NAME} visible letters and "
            f"{shorten(repr(annotator))} does not; give another"
        )
    if not _can_be_saved(name):
        raise FfmemError(f"{ascii(name)} is not a name that can be saved; type it again")
    return name


def _can_be_saved(text: str) -> bool:
    """Whether every database can hold a text: no NUL, no half of a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text
