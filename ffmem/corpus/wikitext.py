"""WikiText's own form of a text: headings, and its tokenised words, which can be undone."""

from __future__ import annotations

import re

_HEADING = re.compile(r"\s*((?:= )+)[^=\s].*?((?: =)+)\s*")
_JOINED = re.compile(r" @([-,.])@ ")
_BEFORE = re.compile(r" (?=[.,;:!?%)\]}](?:\s|$|[\"').,;:!?%\]}]))| (?='(?:s|re|ve|ll|d|m|t)\b)")
_AFTER = re.compile(r"(?<=[(\[{$£€#]) ")
_NEGATION = re.compile(r"(?<=\w)n 't\b|(?<=\w) n't\b")
_QUOTED = re.compile(r'(?:(?<=\s)|^|(?<=[(\[{])) ?" ?([^"]*?) ?"(?=\W|$)')
_SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")


def is_heading(line: str) -> bool:
    """Whether a line is a WikiText heading, `= Title =` or `= = Section = =`."""
    found = _HEADING.fullmatch(line)
    return found is not None and len(found[1]) == len(found[2])


def detokenise(text: str) -> str:
    """The text as it was printed: @-@ @,@ @.@ undone, no space before punctuation, quotes closed.

    An unpaired quote and `<unk>` stay unchanged. Text that was never tokenised hardly changes.
    """
    text = _JOINED.sub(r"\1", text)
    text = _NEGATION.sub(lambda found: found[0].replace(" ", ""), text)
    text = _QUOTED.sub(r'"\1"', text)
    text = _BEFORE.sub("", text)
    text = _AFTER.sub("", text)
    return _SPACES.sub(" ", text)
