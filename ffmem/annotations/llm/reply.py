"""What a language model replied, checked against the record before it may become an answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ffmem.annotations.sheets import PatternAnswer
from ffmem.patterns.record import MIN_TRIGGERS

LONGEST = 300  # characters of a description


@dataclass(frozen=True)
class ParsedReply:
    """The patterns of a reply that hold, and in sentences what does not.

    `readable` is False where the reply as a whole is no answer: no JSON, or none of our form.
    """

    said: tuple[PatternAnswer, ...]
    faults: tuple[str, ...]
    readable: bool = True


def parse_reply(text: str, prefixes: int) -> ParsedReply:
    """Read a reply about a sheet of so many prefixes."""
    found = _object(text)
    if found is None:
        return ParsedReply((), ("there is no JSON object in it",), readable=False)
    patterns = found.get("patterns")
    if not isinstance(patterns, list):
        return ParsedReply((), ('the object has no list "patterns"',), readable=False)
    said: list[PatternAnswer] = []
    faults: list[str] = []
    for number, each in enumerate(patterns, 1):
        wrong = _fault(each, prefixes, said)
        if wrong:
            faults.append(f"pattern {number}: {wrong}")
        else:
            ranks = tuple(sorted({int(rank) for rank in each["prefixes"]}))
            said.append(PatternAnswer(" ".join(each["description"].split()), each["class"], ranks))
    return ParsedReply(tuple(said), tuple(faults))


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


def _fault(each: Any, prefixes: int, before: list[PatternAnswer]) -> str | None:
    """What is wrong with one pattern, or None."""
    if not isinstance(each, dict):
        return "it is no object"
    description = each.get("description")
    if not isinstance(description, str) or not re.search(r"\w", description):
        return '"description" must say what the pattern is'
    if len(description) > LONGEST:
        return f'"description" must have at most {LONGEST} characters'
    if any(said.description.lower() == " ".join(description.lower().split()) for said in before):
        return "its description was given before"
    if each.get("class") not in ("shallow", "semantic"):
        return '"class" must be "shallow" or "semantic"'
    return _fault_of_ranks(each.get("prefixes"), prefixes)


def _fault_of_ranks(ranks: Any, prefixes: int) -> str | None:
    if not isinstance(ranks, list) or not all(
        isinstance(rank, int) and not isinstance(rank, bool) for rank in ranks
    ):
        return '"prefixes" must be a list of whole numbers'
    outside = [rank for rank in ranks if not 1 <= rank <= prefixes]
    if outside:
        return f"{outside[0]} is not among the beginnings 1 to {prefixes}"
    if len(set(ranks)) < MIN_TRIGGERS:
        return f"a pattern needs {MIN_TRIGGERS} different beginnings and this has {len(set(ranks))}"
    return None
