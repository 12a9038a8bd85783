"""What kind of word a word is: function word or content, number or month, and its stem."""

from __future__ import annotations

import re

FUNCTION_WORDS = frozenset(
    """
    a about above across after again against all almost along already also although always am among
    an and another any are around as at away back be became because become been before began behind
    being below between both but by called came can cannot could did do does doing done down during
    each either else even ever every few first for former from further get give given go goes going
    got had has have having he her here hers herself him himself his how however i if in into is it
    its itself just last later least less like made make makes many may me might more most much must
    my myself near neither never next no nor not nothing now of off often on once one only onto or
    other others our out over own part per perhaps put quite rather said same see several shall she
    should since so some soon still such take than that the their them themselves then there these
    they this those though three through thus to together too toward towards two under until up upon
    us use used using very was we well went were what when where whether which while who whom whose
    why will with within without would yet you your
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
MONTHS = frozenset(
    """january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec""".split()  # noqa: SIM905
)
NUMBER_WORDS = frozenset(
    """one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty
    hundred thousand million billion""".split()  # noqa: SIM905
)
_ENDINGS = ("ations", "ation", "ments", "ment", "ings", "ing", "edly", "ies", "ed", "es", "ly", "s")


def is_content(word: str) -> bool:
    """Whether a word can carry a topic: letters, three or more, and no function word."""
    return len(word) >= 3 and word[0].isalpha() and word.lower() not in FUNCTION_WORDS


def stem(word: str) -> str:
    """The word without its ending, as far as letters alone tell: base, bases -> bas."""
    low = word.lower()
    for ending in _ENDINGS:
        left = low.removesuffix(ending)
        if left != low and len(left) >= 3 and not low.endswith("ss"):
            doubled = len(left) > 3 and left[-1] == left[-2] and left[-1] not in "ls"
            return (left[:-1] if doubled else left).removesuffix("e")
    return low.removesuffix("e") if len(low) > 3 else low


def word_classes(word: str, starts_sentence: bool) -> list[str]:
    """The classes a word belongs to: year, number, month, capitalised."""
    found = []
    if re.fullmatch(r"(1[5-9]|20)\d\d", word):
        found.append("year")
    if re.fullmatch(r"\d[\d.,]*", word) or word.lower() in NUMBER_WORDS:
        found.append("number")
    if word.lower() in MONTHS and word[0].isupper():
        found.append("month")
    if word[0].isupper() and not starts_sentence:
        found.append("capitalised")
    return found
