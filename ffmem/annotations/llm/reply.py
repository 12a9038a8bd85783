"""What a language model replied, read and checked before it may become an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from ffmem.annotations.answer_rules import check, normalise
from ffmem.annotations.sheets import PatternAnswer, Sheet
from ffmem.patterns.record import Kind


@dataclass(frozen=True)
class ParsedReply:
    """The patterns of a reply that hold, and a sentence for each of those that do not.

    `readable` is False where the reply as a whole is not an answer: no JSON, or none of our form.
    """

    said: tuple[PatternAnswer, ...]
    faults: tuple[str, ...]
    readable: bool = True


def parse_reply(text: str, sheet: Sheet) -> ParsedReply:
    """Read a reply about a sheet."""
    found = _object(text)
    if found is None:
        return ParsedReply((), ("there is no JSON object in it",), readable=False)
    patterns = found.get("patterns")
    if not isinstance(patterns, list):
        return ParsedReply((), ('the object has no list "patterns"',), readable=False)
    read = {number: _pattern(each) for number, each in enumerate(patterns, 1)}
    answers = {number: each for number, each in read.items() if not isinstance(each, str)}
    faults = {number: [each] for number, each in read.items() if isinstance(each, str)}
    numbers = list(answers)
    for fault in check(list(answers.values()), sheet):
        faults.setdefault(numbers[fault.pattern - 1], []).append(fault.message)
    return ParsedReply(
        tuple(normalise(each) for number, each in answers.items() if number not in faults),
        tuple(f"pattern {number}: {'; '.join(faults[number])}" for number in sorted(faults)),
    )


def _object(text: str) -> dict[str, Any] | None:
    """The first JSON object that has our list, or else the first at all, whatever is around it."""
    decoder, found = json.JSONDecoder(), list[dict[str, Any]]()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        found.append(value)
        at = text.find("{", end)
    return next((each for each in found if "patterns" in each), found[0] if found else None)


def _pattern(each: Any) -> PatternAnswer | str:
    """One pattern, not yet checked, or why it does not have the form of one."""
    if not isinstance(each, dict):
        return "it is not an object"
    description, kind = each.get("description", ""), each.get("class", "")
    if not isinstance(description, str) or not isinstance(kind, str):
        return '"description" and "class" must be texts'
    ranks = each.get("prefixes", [])
    if not isinstance(ranks, list) or any(type(rank) is not int for rank in ranks):
        return '"prefixes" must be a list of whole numbers'
    return PatternAnswer(description, cast(Kind, kind), tuple(ranks))
