"""What an annotator may say of a sheet, whichever way it is given."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ffmem.annotations.sheets import PatternAnswer, Sheet
from ffmem.errors import FfmemError
from ffmem.patterns.record import MIN_TRIGGERS

LONGEST_NAME = 80
BY_PROGRAM = "rules"
# Characters that cannot be seen: controls, and those that only turn, join or part others.
UNSEEN = (
    r"\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
NAME_PATTERN = rf"^(?!\s*{BY_PROGRAM}\s*$)[^{UNSEEN}]*[^\s{UNSEEN}][^{UNSEEN}]*$"
DESCRIPTION_PATTERN = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"


def check_answer(sheet: Sheet, said: Sequence[PatternAnswer]) -> tuple[PatternAnswer, ...]:
    """The patterns with spaces made even, or one sentence what is wrong with them."""
    found: list[PatternAnswer] = []
    for number, each in enumerate(said, 1):
        description = " ".join(each.description.split())
        if not description:
            raise FfmemError(f"pattern {number} has no description; describe it in a few words")
        if description.casefold() in {other.description.casefold() for other in found}:
            raise FfmemError(f"pattern {number} is described as one before; join or reword them")
        ranks = tuple(sorted(set(each.ranks)))
        if len(ranks) < MIN_TRIGGERS:
            raise FfmemError(f"pattern {number} has {len(ranks)} prefixes; it needs {MIN_TRIGGERS}")
        if ranks[0] < 1 or ranks[-1] > len(sheet.prefixes):
            last = len(sheet.prefixes)
            raise FfmemError(f"pattern {number} names a prefix that is not among 1 to {last}")
        found.append(PatternAnswer(storable(description), each.kind, ranks))
    return tuple(found)


def check_name(annotator: str) -> str:
    """An annotator's name, or one sentence why it is none."""
    name = " ".join(annotator.split())
    if name == BY_PROGRAM:
        raise FfmemError(f"the name {name!r} is for answers by program; give another")
    if len(name) > LONGEST_NAME or not re.fullmatch(NAME_PATTERN, annotator):
        raise FfmemError(f"a name has 1 to {LONGEST_NAME} letters; give yours")
    return storable(name)


def storable(text: str) -> str:
    """The text, if every database can hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise FfmemError(f"{ascii(text)} is no text that can be saved; type it again") from None
    if "\0" in text:
        raise FfmemError("the text holds a character that cannot be saved; type it again")
    return text
