from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from ffmem.annotations.markdown import is_blank_sheet, parse_sheet, sheet_text
from ffmem.annotations.sheets import PatternAnswer, Sheet, SheetPrefix
from ffmem.errors import StoreError
from tests.waiting import time_limit

WORDS = ("river", "hill", "stone", "road", "field", "lake", "wood", "shore")
SHEET = Sheet(
    name="ab12cd34",
    scan="s",
    layer=2,
    key="L2.7",
    control=None,
    prefixes=tuple(
        SheetPrefix(f"the {word} is_an *odd* ", f"thing{number}")
        for number, word in enumerate(WORDS, 1)
    ),
)
KNOWN = {SHEET.name: SHEET}
ANSWER = [
    PatternAnswer("ends with a thing", "shallow", (1, 2, 3, 4)),
    PatternAnswer("about: land and water", "semantic", (3, 6, 8)),
]


def filled(text: str) -> str:
    """The sheet as a careful person fills it in."""
    text = text.replace("Description: ", "Description: ends with a thing", 1)
    text = text.replace("Class: \n", "Class: shallow\n", 1)
    text = text.replace("Prefixes: \n", "Prefixes: 1-4\n", 1)
    text = text.replace("Description: \n", "Description: about: land and water\n", 1)
    text = text.replace("Class: \n", "Class: Semantic\n", 1)
    return text.replace("Prefixes: \n", "Prefixes: 8, 3 6\n", 1)


def test_what_is_filled_in_comes_back() -> None:
    assert parse_sheet(filled(sheet_text(SHEET)), "a.md", KNOWN) == (SHEET, ANSWER)


@pytest.mark.parametrize(
    "edited",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\n".join(line.rstrip() for line in text.split("\n")) + "\n\n\n",
        lambda text: text.replace("about: land and", "about:\n   land and"),
        lambda text: text.replace("the river is_an", "the river\n   is_an"),
        lambda text: text.replace("*odd*", r"\*odd\*").replace("**thing", "__thing"),
        lambda text: text.replace("1-4", "1 – 4."),
        lambda text: text.replace("### Pattern 2", "### Pattern 9"),
    ],
)
def test_what_an_editor_does_to_a_sheet_changes_nothing(edited: Callable[[str], str]) -> None:
    text = edited(filled(sheet_text(SHEET)))
    assert parse_sheet(text, "a.md", KNOWN) == (SHEET, ANSWER)


def test_no_pattern_is_an_answer_when_it_is_ticked() -> None:
    empty = sheet_text(SHEET)
    assert is_blank_sheet(empty)
    ticked = empty.replace("[ ]", "[x]")
    assert not is_blank_sheet(ticked)
    assert parse_sheet(ticked, "a.md", KNOWN) == (SHEET, [])


REFUSED: dict[str, tuple[Callable[[str], str], str, str]] = {
    # what is done to the filled sheet, the line to fix by its text, and part of the message
    "class missing": (lambda t: t.replace("Class: shallow", "Class:"), "Class:", "empty"),
    "prefixes missing": (lambda t: t.replace("8, 3 6", ""), "Prefixes: ", "needs 3 different"),
    "no class line": (lambda t: t.replace("Class: shallow\n", ""), "Description: ends", "no line"),
    "another class": (lambda t: t.replace("shallow\n", "deep\n", 1), "Class: deep", "two patterns"),
    "two prefixes": (lambda t: t.replace("8, 3 6", "8, 3"), "Prefixes: 8, 3", "needs 3 different"),
    "twice": (lambda t: t.replace("8, 3 6", "8, 3, 8"), "Prefixes: 8, 3, 8", "named twice"),
    "outside": (lambda t: t.replace("8, 3 6", "8, 3, 9"), "Prefixes: 8, 3, 9", "1 to 8"),
    "far outside": (lambda t: t.replace("1-4", "1-999999999"), "Prefixes: 1-9", "9 is not among"),
    "backwards": (lambda t: t.replace("1-4", "4-1"), "Prefixes: 4-1", "not a prefix number"),
    "endless": (lambda t: t.replace("1-4", "1" * 5000), "Prefixes: 11", "not a prefix number"),
    "not numbers": (lambda t: t.replace("1-4", "all"), "Prefixes: all", "not a prefix number"),
    "tick and pattern": (lambda t: t.replace("[ ]", "[x]"), "No pattern found: [x]", "clear one"),
    "changed prefix": (lambda t: t.replace("the hill", "a hill"), "2. a hill", "given out"),
    "prefix gone": (
        lambda t: t.replace("8. the shore is_an *odd* **thing8**\n", ""),
        "",
        "gone",
    ),
    "lost words": (
        lambda t: t.replace("### Pattern 2\n", "### Pattern 2\nmore to say\n"),
        "more to say",
        "no field",
    ),
    "same twice": (
        lambda t: t.replace("about: land and water", "Ends with a thing"),
        "Description: Ends with",
        "given before",
    ),
    "nothing": (lambda t: sheet_text(SHEET), "No pattern found", "nothing is filled in"),
    "another sheet": (lambda t: t.replace("ab12cd34", "ffffffff"), "# Sheet ffff", "no sheet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_half_filled_or_contradictory_sheets_are_refused_with_the_line_to_mend(case: str) -> None:
    change, line_text, message = REFUSED[case]
    text = change(filled(sheet_text(SHEET)))
    with pytest.raises(StoreError, match=message) as found:
        parse_sheet(text, "a.md", KNOWN)
    assert str(found.value).startswith("a.md, line ")
    number = int(str(found.value).removeprefix("a.md, line ").split(":")[0])
    assert text.split("\n")[number - 1].startswith(line_text)


LONG = 300_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Prefixes: 1-4", "Prefixes: 1" + " " * LONG + "4"),
        ("Prefixes: 1-4", "Prefixes: 1-4\n" + "\n".join(["5"] * LONG)),
        ("the river is_an", "the\n" * LONG + "river is_an"),
    ],
)
def test_a_long_sheet_takes_no_longer_than_its_length(before: str, after: str) -> None:
    text = filled(sheet_text(SHEET)).replace(before, after, 1)
    with time_limit(60), suppress(StoreError):
        parse_sheet(text, "a.md", KNOWN)
