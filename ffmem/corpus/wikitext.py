"""WikiText's tokenised form: what it does to text, and how to undo it."""

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

    A quote without a partner and `<unk>` stay as they are. Text that was never tokenised comes
    back with few changes or none.
    """
    text = _JOINED.sub(r"\1", text)
    text = _NEGATION.sub(lambda found: found[0].replace(" ", ""), text)
    text = _QUOTED.sub(r'"\1"', text)
    text = _BEFORE.sub("", text)
    text = _AFTER.sub("", text)
    return _SPACES.sub(" ", text)
