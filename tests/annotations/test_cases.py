from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ffmem.analyses.last_layer.record import Case, Judgement, LastLayer
from ffmem.analyses.statistics import wilson
from ffmem.annotations.agreement import case_agreement
from ffmem.annotations.markdown import (
    case_sheet_text,
    is_blank_case_sheet,
    is_case_sheet,
    parse_case_sheet,
    sheet_text,
)
from ffmem.annotations.sheets import ON_A_SHEET, CaseAnswer, CaseSheet, draw_case_sheets
from ffmem.errors import StoreError
from tests.annotations.test_sheets import SHEET as KEY_SHEET
from tests.waiting import time_limit

NOTHING = wilson(0, 0)


def case(number: int, related: bool = False) -> Case:
    because = "same stem" if related else "distant"
    prefix, old = f"it is_an *odd*\n day {number}", f" old{number}"
    return Case(number, 3, prefix, old, " -", f" new{number}", " gold", related, because)


def result(cases: int, controls: int) -> LastLayer:
    """Every third case is related by the rule, and no control is."""
    return LastLayer(
        cases=tuple(case(number, number % 3 == 0) for number in range(cases)),
        controls=tuple(replace(case(1000 + n), gold=None) for n in range(controls)),
        found=cases,
        related=NOTHING,
        random=NOTHING,
        shuffled=NOTHING,
    )


[(SHEET, BY_RULE)] = draw_case_sheets(result(4, 2), "s")
KNOWN = {SHEET.name: SHEET}
SAID: list[Judgement] = ["related", "distant", "distant", "related", "distant", "related"]


def filled(text: str) -> str:
    for judgement in SAID:
        text = text.replace("- Judgement: \n", f"- Judgement: {judgement}\n", 1)
    return text


def test_cases_and_controls_are_mixed_and_do_not_show() -> None:
    sheets = draw_case_sheets(result(60, 30), "s")
    assert [len(sheet.cases) for sheet, _ in sheets] == [ON_A_SHEET, ON_A_SHEET, ON_A_SHEET, 15]
    shown = [case for sheet, _ in sheets for case in sheet.cases]
    assert sum(case.control for case in shown) == 30
    assert all(len({case.control for case in sheet.cases}) == 2 for sheet, _ in sheets)
    assert sheets == draw_case_sheets(result(60, 30), "s")
    judged = [judgement for _, said in sheets for judgement in said]
    for found, judgement in zip(shown, judged, strict=True):
        number = int(found.prefix.split()[-1])
        expected = "related" if number < 1000 and number % 3 == 0 else "distant"
        assert (judgement, found.control) == (expected, number >= 1000)
    assert "control" not in case_sheet_text(sheets[0][0]).lower()
    fewer = [case for sheet, _ in draw_case_sheets(result(60, 30), "s", 5) for case in sheet.cases]
    assert sum(case.control for case in fewer) == 5


def test_what_is_filled_in_comes_back() -> None:
    text = filled(case_sheet_text(SHEET))
    assert is_case_sheet(text)
    assert not is_case_sheet(sheet_text(KEY_SHEET))
    assert parse_case_sheet(text, "a.md", KNOWN) == (SHEET, SAID)
    assert is_blank_case_sheet(case_sheet_text(SHEET))
    assert not is_blank_case_sheet(text)


@pytest.mark.parametrize(
    "edited",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\n".join(line.rstrip() for line in text.split("\n")) + "\n\n\n",
        lambda text: text.replace("it is_an", "it\n  is_an").replace("*odd*", r"\*odd\*"),
        lambda text: text.replace("\n- ", "\n* ").replace("related\n", "`Related`.\n"),
        lambda text: text.replace("**", "__"),
    ],
)
def test_what_an_editor_does_to_a_sheet_changes_nothing(edited: Callable[[str], str]) -> None:
    text = edited(filled(case_sheet_text(SHEET)))
    assert is_case_sheet(text)
    assert parse_case_sheet(text, "a.md", KNOWN) == (SHEET, SAID)


REFUSED: dict[str, tuple[Callable[[str], str], str, str]] = {
    # what is done to the filled sheet, the line to fix by its text, and part of the message
    "half filled": (lambda t: t.replace(": distant\n", ": \n", 1), "- Judgement: ", "is empty"),
    "nothing": (lambda t: case_sheet_text(SHEET), "- Judgement: ", "is empty"),
    "both words": (
        lambda t: t.replace(": distant", ": related distant", 1),
        "- Judgement: related distant",
        "write related or distant",
    ),
    "judged twice": (
        lambda t: t.replace("- Judgement: distant\n", "- Judgement: distant\nJudgement: related\n"),
        "Judgement: related",
        "twice",
    ),
    "no line": (lambda t: t.replace("- Judgement: related\n", "", 1), "### 1", "no line"),
    "changed token": (
        lambda t: t.replace("Before: **", "Before: **un", 1),
        "- Before: **un",
        "given out",
    ),
    "part gone": (
        lambda t: "\n".join(
            line for n, line in enumerate(t.split("\n")) if n != t.split("\n").index("- Layer: -")
        ),
        "- Text goes on",
        "given out",
    ),
    "case gone": (
        lambda t: t[: t.index("### 3")] + t[t.index("### 4") :],
        "### 4",
        "1 to 6",
    ),
    "last gone": (lambda t: t[: t.index("### 6")], "", "1 to 6"),
    "one too many": (lambda t: t + "### 7\n", "### 7", "1 to 6"),
    "another sheet": (lambda t: t.replace(SHEET.name, "ffffffff"), "# Cases ffff", "no sheet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_half_filled_or_contradictory_sheets_are_refused_with_the_line_to_mend(name: str) -> None:
    change, line_text, message = REFUSED[name]
    text = change(filled(case_sheet_text(SHEET)))
    with pytest.raises(StoreError, match=message) as found:
        parse_case_sheet(text, "a.md", KNOWN)
    assert str(found.value).startswith("a.md, line ")
    number = int(str(found.value).removeprefix("a.md, line ").split(":")[0])
    assert text.split("\n")[number - 1].startswith(line_text)


def test_shares_and_kappa_are_those_counted_by_hand() -> None:
    sheets = draw_case_sheets(result(60, 30), "s")

    def by(who: str, judge: Callable[[int], bool]) -> list[CaseAnswer]:
        def judgements(sheet: CaseSheet) -> tuple[Judgement, ...]:
            numbers = [int(case.prefix.split()[-1]) for case in sheet.cases]
            return tuple("related" if judge(number) else "distant" for number in numbers)

        return [CaseAnswer(sheet, who, judgements(sheet)) for sheet, _ in sheets]

    found = case_agreement(
        [CaseAnswer(sheet, "rules", said) for sheet, said in sheets]
        + by("ana", lambda number: number % 2 == 0)
        + by("bo", lambda number: number % 3 == 0 and number < 1000)
    )
    shares = {share.annotator: (share.related, share.controls) for share in found.shares}
    assert shares == {
        "ana": (wilson(30, 60), wilson(15, 30)),
        "bo": (wilson(20, 60), wilson(0, 30)),
        "rules": (wilson(20, 60), wilson(0, 30)),
    }
    pairs = {(pair.one, pair.other): pair for pair in found.pairs}
    assert pairs["bo", "rules"].kappa == 1
    # evens and multiples of three meet as often as chance has it: 10 of 60, and 20 of neither
    assert pairs["ana", "rules"].same == pytest.approx(30 / 60)
    assert pairs["ana", "rules"].kappa == pytest.approx(0)
    assert pairs["ana", "rules"].cases == 60
    assert len(found.disagreements) == 30
    assert all(not case.control for case, _ in found.disagreements)


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    text = case_sheet_text(SHEET) + " " * 300_000 + "x"
    with time_limit(60), pytest.raises(StoreError):
        parse_case_sheet(text, "a.md", KNOWN)
