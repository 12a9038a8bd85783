"""What can be seen on the surface of a prefix: how it ends, what stands near its end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ffmem.analyses.english import is_content, stem, word_classes
from ffmem.patterns.prefixes import Prefix

NEAR = 8  # words from the end that count as near it
# The more specific a kind is, the rather it is taken among patterns of like cover.
SPECIFIC = {
    "last 3": 8,
    "last 2": 7,
    "last word": 6,
    "last token": 5,
    "stem": 4,
    "near 2": 3,
    "at": 2,
    "near": 2,
    "class": 1,
}
CLASS_SENTENCES = {
    "year": "ends with a year",
    "number": "ends with a number",
    "month": "ends with a month",
    "capitalised": "ends with a capitalised word",
    "quotation": "inside a quotation",
    "bracket": "inside a bracket",
}


@dataclass(frozen=True)
class Feature:
    """Something on the surface that several prefixes can share."""

    kind: str
    value: tuple[str, ...]

    @property
    def description(self) -> str:
        """The feature in words."""
        text = " ".join(self.value)
        match self.kind:
            case "class":
                return CLASS_SENTENCES[text]
            case "stem":
                return f"ends with a form of ‘{text}-’"
            case "last token":
                return f"ends with the token ‘{text}’"
            case "near" | "near 2":
                return f"‘{text}’ near the end"
            case "at":
                words = "word" if self.value[1] == "1" else "words"
                return f"‘{self.value[0]}’ {self.value[1]} {words} before the last"
            case _:
                return f"ends with ‘{text}’"


def features(prefix: Prefix) -> dict[Feature, frozenset[int]]:
    """Every feature of a prefix, with the words (by number) that make it."""
    words = [word for word, _, _ in prefix.words]
    if not words:
        return {}
    low = [word.lower() for word in words]
    end = len(words) - 1
    found: dict[Feature, frozenset[int]] = {Feature("last word", (low[-1],)): frozenset({end})}
    for size in (2, 3):
        if len(low) >= size:
            span = frozenset(range(len(low) - size, len(low)))
            found[Feature(f"last {size}", tuple(low[-size:]))] = span
    token = prefix.last.strip()
    if token and token.lower() != low[-1]:
        found[Feature("last token", (token.lower(),))] = frozenset({end})
    if is_content(words[-1]):
        found[Feature("stem", (stem(words[-1]),))] = frozenset({end})
    found |= _near(low)
    classes = word_classes(words[-1], starts_sentence=end == 0) + _open_marks(prefix.text)
    for name in classes:
        found[Feature("class", (name,))] = frozenset({end})
    return found


def _near(low: list[str]) -> dict[Feature, frozenset[int]]:
    """Content words close to the end but not at it, by themselves, in pairs and by distance."""
    end, begin = len(low) - 1, max(0, len(low) - NEAR)
    found: dict[Feature, frozenset[int]] = {}
    for at in range(begin, end):
        if is_content(low[at]) and low[at] != low[end]:
            found[Feature("near", (low[at],))] = frozenset({at})
        distance = end - at
        if distance in (1, 2, 3) and low[at].isalnum():
            found[Feature("at", (low[at], str(distance)))] = frozenset({at})
    for one, other in pairwise(range(begin, end)):
        if is_content(low[one]) or is_content(low[other]):
            found[Feature("near 2", (low[one], low[other]))] = frozenset({one, other})
    return found


def _open_marks(text: str) -> list[str]:
    found = ["bracket"] if text.count("(") > text.count(")") else []
    if text.count('"') % 2 or text.count("“") > text.count("”"):
        found.append("quotation")
    return found
