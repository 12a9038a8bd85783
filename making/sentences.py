"""Where a sentence ends, for text as clean as ours."""

import re

from making.word_lists import listed

# Words before a full stop that does not end a sentence.
ABBREVIATIONS = listed(
    "Mr, Mrs, Ms, Dr, Prof, Sr, Jr, St, Mt, No, vs, etc, Lt, Col, Gen, Capt, Sgt, Rev, Hon, Gov, "
    "Sen, Rep, Co, Inc, Ltd, ca"
)
_END = re.compile(r"""[.!?]["')]*(?= ["'(]?[A-Z0-9])|[.!?]["')]*$""")
_LAST_WORD = re.compile(r"([^\s.(\"']+)\.[\"')]*$")


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; joined by single spaces they give the paragraph back."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(paragraph):
        candidate = paragraph[start : end.end()]
        if end.end() < len(paragraph) and _is_abbreviation(candidate):
            continue
        found.append(candidate.strip(" "))
        start = end.end()
    rest = paragraph[start:].strip(" ")
    return found + [rest] if rest else found


def _is_abbreviation(text: str) -> bool:
    """Whether the text ends in `Dr.`, an initial, or the like."""
    last = _LAST_WORD.search(text)
    if last is None:
        return False
    word = last[1]
    return word in ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")
