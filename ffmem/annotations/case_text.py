"""A sheet of cases as Markdown that a person fills in, and back, checked line by line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ffmem.annotations.cases import CaseSheet, Judgement, ShownCase
from ffmem.annotations.filled import FilledFile, letters

INSTRUCTIONS = """\
Each case is the beginning of a text. Before its last layer a language model would have gone on with
the token under Before; after it, with the token under After.

- Judge only these two: are they `related` in meaning (later and earlier, gastric and stomach), or
  `distant` (people and same)? Forms of one word are related.
- Write one of the two words behind Judgement. Every case needs one.
- Layer is what the last layer alone says, Text goes on is the true next token: for context only.
"""
_HEADING = re.compile(r"#\s*Cases\s+(\w+)")
_NUMBER = re.compile(r"\s*###\s*(\d+)\s*$")
_JUDGEMENT = re.compile(r"\s*[-*+]?\s*Judgement\s*:(.*)$", re.IGNORECASE)


def case_sheet_text(sheet: CaseSheet) -> str:
    """The sheet to fill in."""
    lines = [f"# Cases {sheet.name}", "", INSTRUCTIONS]
    for number, case in enumerate(sheet.cases, 1):
        lines += [f"### {number}", "", *(f"- {line}" for line in _fixed(case)), "- Judgement: ", ""]
    return "\n".join(lines)


def _fixed(case: ShownCase) -> list[str]:
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


def cases_untouched(text: str) -> bool:
    """Whether nobody has begun a sheet of cases."""
    return not any((f := _JUDGEMENT.match(line)) and f[1].strip() for line in text.splitlines())


def filled_cases(
    text: str, file: str, sheets: Mapping[str, CaseSheet]
) -> tuple[CaseSheet, list[Judgement]]:
    """The sheet that a file is, and a judgement a case; refuses what is half said."""
    place = FilledFile.of(text, file)
    sheet = _which(place, sheets)
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
        _judged(place, start, end, case)
        for (start, _), end, case in zip(starts, ends, sheet.cases, strict=True)
    ]


def _which(place: FilledFile, sheets: Mapping[str, CaseSheet]) -> CaseSheet:
    for number, line in enumerate(place.lines, 1):
        if found := _HEADING.match(line):
            if found[1] not in sheets:
                raise place.wrong(number, f"there is no sheet of cases {found[1]} in this database")
            return sheets[found[1]]
    raise place.wrong(1, "the heading ‘# Cases NAME’ is gone; put it back")


def _judged(place: FilledFile, start: int, end: int, case: ShownCase) -> Judgement:
    """What is said of the case on the lines behind `start`."""
    said = list[tuple[int, str]]()
    shown = list[tuple[int, str]]()
    for number in range(start + 1, end + 1):
        line = place.lines[number - 1]
        if found := _JUDGEMENT.match(line):
            said.append((number, found[1].strip(" \t`*_.").lower()))
        else:
            shown.append((number, letters(re.sub(r"^\s*[-*+]\s", "", line))))
    _check_shown(place, start, shown, case)
    if not said:
        raise place.wrong(start, "this case has no line ‘Judgement:’; add it")
    if len(said) > 1:
        raise place.wrong(said[1][0], "this case is judged twice; keep one judgement")
    line_number, judgement = said[0]
    if not judgement:
        raise place.wrong(line_number, "the judgement is empty; write related or distant")
    if judgement not in ("related", "distant"):
        raise place.wrong(line_number, f"the judgement is {judgement!r}; write related or distant")
    return judgement  # type: ignore[return-value]


def _check_shown(
    place: FilledFile, start: int, shown: list[tuple[int, str]], case: ShownCase
) -> None:
    """Refuse a case that was altered; wrapped lines and spaces do not matter."""
    rest = "".join(letters(line) for line in _fixed(case))
    for number, found in shown:
        if not rest.startswith(found):
            raise place.wrong(number, "this is not what was given out; put it back")
        rest = rest[len(found) :]
    if rest:
        raise place.wrong(start, "a part of this case is gone; put it back")
