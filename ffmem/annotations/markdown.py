"""A sheet as Markdown that a person fills in, and back, checked line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from ffmem.analyses.last_layer.record import Judgement
from ffmem.analyses.patterns.record import MIN_TRIGGERS, PatternKind
from ffmem.annotations.answer_rules import check, normalise
from ffmem.annotations.sheets import (
    CaseLine,
    CaseSheet,
    PatternAnswer,
    Sheet,
    SheetPrefix,
)
from ffmem.errors import StoreError, shorten

S = TypeVar("S", Sheet, CaseSheet)
BLANKS = 6  # empty patterns on a sheet; more can be added by hand
INSTRUCTIONS = f"""\
Each line under Prefixes is the beginning of a sentence; its last token is in **bold**.

- Find what repeats: a pattern is something that at least {MIN_TRIGGERS} of the prefixes have in\
 common.
- Describe each pattern in a few words.
- Class: `shallow` for what can be seen on the surface (the same last word, a recurring phrase),
  `semantic` for a shared meaning or topic.
- Prefixes: the numbers of those that have the pattern, such as 1, 4-7, 12. A prefix can have
  several patterns, or none.
- More patterns: copy an empty one. If nothing repeats, put an x between the brackets below.
"""
FIELDS = ("Description", "Class", "Prefixes")
_NONE = re.compile(r"no pattern found:\s*\[(.?)\]\s*$", re.IGNORECASE)
_FIELD = re.compile(rf"\s*({'|'.join(FIELDS)})\s*:(.*)$", re.IGNORECASE)


def sheet_text(sheet: Sheet) -> str:
    """The sheet to fill in."""
    lines = [f"# Sheet {sheet.name}", "", INSTRUCTIONS, "## Prefixes", ""]
    lines += [f"{rank}. {_line(prefix)}" for rank, prefix in enumerate(sheet.prefixes, 1)]
    lines += ["", "## Patterns", "", "No pattern found: [ ]", ""]
    for number in range(1, BLANKS + 1):
        lines += [f"### Pattern {number}", "", *(f"{name}: " for name in FIELDS), ""]
    return "\n".join(lines)


def _line(prefix: SheetPrefix) -> str:
    last = prefix.last.strip()
    gap = " " if prefix.last[:1].isspace() else ""
    return " ".join(f"{prefix.before}{gap}**{last or '␣'}**".split())


@dataclass
class _Field:
    parts: list[str]
    line: int

    @property
    def text(self) -> str:
        """Its lines as one."""
        return " ".join(filter(None, self.parts))


def parse_sheet(
    text: str, file: str, sheets: Mapping[str, Sheet]
) -> tuple[Sheet, list[PatternAnswer]]:
    """The sheet that a file is, and what is said on it; refuses what is half said."""
    place = SheetFile.of(text, file)
    lines = place.lines
    sheet = _sheet_named(place, "Sheet", sheets, "sheet")
    headings = {
        line.strip("# \t").lower(): number
        for number, line in enumerate(lines, 1)
        if line.startswith("## ")
    }
    for wanted in ("prefixes", "patterns"):
        if wanted not in headings:
            raise place.wrong(1, f"the heading ‘## {wanted.title()}’ is gone; put it back")
    start, end = headings["prefixes"], headings["patterns"]
    given = (f"{n}.{_line(one)}" for n, one in enumerate(sheet.prefixes, 1))
    shown = list(enumerate(lines, 1))[start : end - 1]
    altered = "this prefix is not the one that was given out; put it back"
    if not _is_whole(place, shown, given, altered):
        line = max(start + 1, end - 1)
        raise place.wrong(line, "some prefixes after this line are gone; put them back")
    none, blocks = _blocks(place, end)
    own_blocks = [block for block in blocks if _has_content(block)]
    answers = [_pattern(block, len(sheet.prefixes), place) for block in own_blocks]
    _check_tick(none, answers, place)
    for fault in check(answers, sheet):
        field = own_blocks[fault.pattern - 1][fault.field.capitalize()]
        raise place.wrong(field.line, fault.message)
    return sheet, [normalise(each) for each in answers]


def is_blank_sheet(text: str) -> bool:
    """Whether nobody has begun a sheet: no tick, no field."""
    lines = text.splitlines()
    ticked = any((tick := _NONE.search(line)) and tick[1].strip() for line in lines)
    return not ticked and not any((f := _FIELD.match(line)) and f[2].strip() for line in lines)


def _sheet_named(place: SheetFile, heading: str, sheets: Mapping[str, S], kind: str) -> S:
    """The sheet whose name is in the heading of a file."""
    for number, line in enumerate(place.lines, 1):
        if found := re.match(rf"#\s*{heading}\s+(\w+)", line):
            if found[1] not in sheets:
                raise place.wrong(number, f"there is no {kind} {found[1]} in this database")
            return sheets[found[1]]
    raise place.wrong(1, f"the heading ‘# {heading} NAME’ is gone; put it back")


def _is_whole(
    place: SheetFile, shown: Iterable[tuple[int, str]], given: Iterable[str], altered: str
) -> bool:
    """Whether numbered lines have all that was given out; wrapped lines and spaces do not matter.

    Refuses other text at its line, as `altered` says.
    """
    every, seen = "".join(map(letters, given)), 0
    for number, text in shown:
        found = letters(text)
        if not every.startswith(found, seen):
            raise place.wrong(number, altered)
        seen += len(found)
    return seen == len(every)


def _blocks(place: SheetFile, start: int) -> tuple[tuple[bool, int], list[dict[str, _Field]]]:
    """The tick for no pattern with its line, and the fields of every pattern."""
    none, blocks, open_field = (False, start), list[dict[str, _Field]](), None
    for number, line in enumerate(place.lines[start:], start + 1):
        if line.lstrip().startswith("#"):
            blocks.append({})
            open_field = None
        elif tick := _NONE.search(line):
            none = (bool(tick[1].strip()), number)
        elif field := _FIELD.match(line):
            name = field[1].capitalize()
            if not blocks or name in blocks[-1]:
                raise place.wrong(number, f"a second {name} in one pattern; begin a new ‘###’")
            open_field = blocks[-1][name] = _Field([field[2].strip()], number)
        elif line.strip():
            if open_field is None:
                raise place.wrong(number, "this belongs to no field; put it into a Description")
            open_field.parts.append(line.strip())
    return none, blocks


def _has_content(block: dict[str, _Field]) -> bool:
    return any(field.text for field in block.values())


def _pattern(block: dict[str, _Field], prefixes: int, place: SheetFile) -> PatternAnswer:
    line = min(field.line for field in block.values())
    for name in FIELDS:
        if name not in block:
            raise place.wrong(line, f"this pattern has no line ‘{name}:’; add it")
    kind = block["Class"].text.strip("`* .").lower()
    ranks = _ranks(block["Prefixes"], prefixes, place)
    return PatternAnswer(block["Description"].text, cast(PatternKind, kind), ranks)


def _ranks(field: _Field, prefixes: int, place: SheetFile) -> tuple[int, ...]:
    """The numbers in a field, ranges written out as far as one beyond the last prefix."""
    text = re.sub(r" ?[-–] ?", "-", " ".join(field.text.split())).strip(" .,;")
    found: list[int] = []
    for part in re.split(r"[,;\s]+", text) if text else ():
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise place.wrong(
                field.line, f"{shorten(part)!r} is not a prefix number; write them as 1, 4-7, 12"
            )
        found += [first, *range(first + 1, min(last, prefixes + 1) + 1)]
    return tuple(found)


def _check_tick(none: tuple[bool, int], answers: list[PatternAnswer], place: SheetFile) -> None:
    ticked, line = none
    if ticked and answers:
        raise place.wrong(line, "no pattern is ticked, yet patterns follow; clear one or the other")
    if not ticked and not answers:
        raise place.wrong(line, "nothing is filled in; describe a pattern, or tick that none is")


@dataclass(frozen=True)
class SheetFile:
    """A file that somebody filled in."""

    name: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, text: str, name: str) -> SheetFile:
        """The lines of a text, whatever editor it comes from."""
        return cls(name, tuple(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")))

    def wrong(self, line: int, what: str) -> StoreError:
        """The error that names the line to fix."""
        return StoreError(f"{self.name}, line {line}: {what}")


def letters(text: str) -> str:
    """Text without what editors change: spaces, and marks that Markdown gives a meaning."""
    return re.sub(r"[\s*_\\]", "", text)


CASE_INSTRUCTIONS = """\
Each case is the beginning of a text. Before its last layer a language model would have gone on with
the token under Before; after it, with the token under After.

- Judge only these two: are they `related` in meaning (later and earlier, gastric and stomach), or
  `distant` (people and same)? Forms of one word are related.
- Write one of the two words behind Judgement. Every case needs one.
- Layer is what the last layer alone says, Text goes on is the true next token: for context only.
"""
_HEADING = re.compile(r"#\s*Cases\s+(\w+)")
_NUMBER = re.compile(r"\s*###\s*(\d+)\s*$")
_JUDGEMENT = re.compile(r"\s*(?:[-*+]\s*)?Judgement\s*:(.*)$", re.IGNORECASE)


def case_sheet_text(sheet: CaseSheet) -> str:
    """The sheet to fill in."""
    lines = [f"# Cases {sheet.name}", "", CASE_INSTRUCTIONS]
    for number, case in enumerate(sheet.cases, 1):
        lines += [
            f"### {number}",
            "",
            *(f"- {line}" for line in _case_heading(case)),
            "- Judgement: ",
            "",
        ]
    return "\n".join(lines)


def _case_heading(case: CaseLine) -> list[str]:
    return [
        f"Text: {' '.join(case.prefix.split())}",
        f"Before: **{_token(case.old)}**",
        f"After: **{_token(case.new)}**",
        f"Layer: {_token(case.layer)}",
        f"Text goes on: {'(it ends here)' if case.gold is None else _token(case.gold)}",
    ]


def _token(token: str) -> str:
    return token.strip() or "␣"


def is_case_sheet(text: str) -> bool:
    """Whether a file is a sheet of cases."""
    return any(_HEADING.match(line) for line in text.removeprefix("\ufeff").splitlines())


def is_blank_case_sheet(text: str) -> bool:
    """Whether nobody has begun a sheet of cases."""
    return not any((f := _JUDGEMENT.match(line)) and f[1].strip() for line in text.splitlines())


def parse_case_sheet(
    text: str, file: str, sheets: Mapping[str, CaseSheet]
) -> tuple[CaseSheet, list[Judgement]]:
    """The sheet that a file is, and a judgement per case; refuses what is half said."""
    place = SheetFile.of(text, file)
    sheet = _sheet_named(place, "Cases", sheets, "sheet of cases")
    starts = [
        (at, int(found[1]))
        for at, line in enumerate(place.lines, 1)
        if (found := _NUMBER.match(line))
    ]
    for wanted in range(1, max(len(sheet.cases), len(starts)) + 1):
        line, number = starts[wanted - 1] if wanted <= len(starts) else (len(place.lines), 0)
        if number != wanted or wanted > len(sheet.cases):
            raise place.wrong(
                line, f"cases 1 to {len(sheet.cases)} were given out, in this order; put them back"
            )
    ends = [line - 1 for line, _ in starts[1:]] + [len(place.lines)]
    return sheet, [
        _judgement(place, start, end, case)
        for (start, _), end, case in zip(starts, ends, sheet.cases, strict=True)
    ]


def _judgement(place: SheetFile, start: int, end: int, case: CaseLine) -> Judgement:
    """What is said of the case on the lines behind `start`."""
    judgements = list[tuple[int, str]]()
    shown = list[tuple[int, str]]()
    for number in range(start + 1, end + 1):
        line = place.lines[number - 1]
        if found := _JUDGEMENT.match(line):
            judgements.append((number, found[1].strip(" \t`*_.").lower()))
        else:
            shown.append((number, re.sub(r"^\s*[-*+]\s", "", line)))
    altered = "this is not what was given out; put it back"
    if not _is_whole(place, shown, _case_heading(case), altered):
        raise place.wrong(start, "a part of this case is gone; put it back")
    if not judgements:
        raise place.wrong(start, "this case has no line ‘Judgement:’; add it")
    if len(judgements) > 1:
        raise place.wrong(judgements[1][0], "this case is judged twice; keep one judgement")
    line_number, judgement = judgements[0]
    if not judgement:
        raise place.wrong(line_number, "the judgement is empty; write related or distant")
    if judgement not in ("related", "distant"):
        raise place.wrong(line_number, f"the judgement is {judgement!r}; write related or distant")
    return judgement  # type: ignore[return-value]
