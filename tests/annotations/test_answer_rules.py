"""The rules of a valid answer, and the table of bad ones that every door must refuse."""

from __future__ import annotations

from typing import cast

import pytest

from ffmem.analyses.patterns.record import PatternKind
from ffmem.annotations.answer_rules import Fault, check, normalise
from ffmem.annotations.sheets import PatternAnswer
from tests.annotations.test_sheets import SHEET

GOOD = ("ends with a river", "shallow", [4, 1, 2])
BAD: dict[str, tuple[list[tuple[str, str, list[int]]], int, str, str]] = {
    # what is said, and the first fault: pattern, field, part of the message
    "two prefixes": ([("x", "shallow", [1, 2])], 1, "prefixes", "3 different prefixes"),
    "no prefix": ([("x", "shallow", [])], 1, "prefixes", "this has 0"),
    "prefix twice": ([("x", "shallow", [1, 2, 3, 2])], 1, "prefixes", "prefix 2 is named twice"),
    "prefix 0": ([("x", "shallow", [0, 1, 2])], 1, "prefixes", "0 is not among"),
    "prefix outside": ([GOOD, ("x", "shallow", [1, 2, 999])], 2, "prefixes", "999 is not among"),
    "another class": ([("x", "deep", [1, 2, 3])], 1, "class", "the class is 'deep'"),
    "no class": ([GOOD, ("x", "", [1, 2, 3])], 2, "class", "the class is empty"),
    "no description": ([("  ", "shallow", [1, 2, 3])], 1, "description", "is empty"),
    "no word": ([("...", "shallow", [1, 2, 3])], 1, "description", "is not a description"),
    "too long": ([("x" * 501, "shallow", [1, 2, 3])], 1, "description", "at most 500"),
    "not text": ([("a\0b", "shallow", [1, 2, 3])], 1, "description", "cannot be saved"),
    "same description": (
        [GOOD, ("x", "semantic", [1, 2, 3]), ("Ends  with A river", "semantic", [1, 2, 3])],
        3,
        "description",
        "given before",
    ),
    "same but for folding": (
        [("die Straße", "shallow", [1, 2, 3]), ("DIE STRASSE", "shallow", [1, 2, 3])],
        2,
        "description",
        "given before",
    ),
}


def to_answers(said: list[tuple[str, str, list[int]]]) -> list[PatternAnswer]:
    return [
        PatternAnswer(words, cast(PatternKind, kind), tuple(ranks)) for words, kind, ranks in said
    ]


@pytest.mark.parametrize("case", BAD)
def test_a_bad_answer_has_one_fault_at_its_field(case: str) -> None:
    said, pattern, field, message = BAD[case]
    (fault,) = check(to_answers(said), SHEET)
    assert (fault.pattern, fault.field) == (pattern, field)
    assert message in fault.message


def test_every_field_of_every_pattern_is_judged() -> None:
    faults = check(to_answers([("", "", []), GOOD, ("x", "deep", [9, 1, 2])]), SHEET)
    assert [(fault.pattern, fault.field) for fault in faults] == [
        (1, "description"),
        (1, "class"),
        (1, "prefixes"),
        (3, "class"),
        (3, "prefixes"),
    ]
    assert all(isinstance(fault, Fault) and ";" in fault.message for fault in faults)


def test_a_valid_answer_has_no_fault_and_one_form() -> None:
    said = to_answers([GOOD, (" about\n a  river ", "semantic", [8, 6, 7]), ("x" * 500, *GOOD[1:])])
    assert check(said, SHEET) == []
    assert normalise(said[1]) == PatternAnswer("about a river", "semantic", (6, 7, 8))
    assert check([], SHEET) == []
