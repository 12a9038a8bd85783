"""The rules that a sampled text has to pass: pure functions from text to paragraphs.

Every rule has a name; the names of the rules that took something away are counted, so that a run
can say what each rule cost.
"""

import re
from collections import Counter

from making.sentences import sentences

SHORTEST_PARAGRAPH = 8  # words
SHORTEST_TEXT = 25  # words
MOST_REPEATED_RUNS = 0.12  # share of a text's runs of four words that it has had before

_PLAIN = {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2014": " – ",
    "\u2212": "-",
    "\u2011": "-",
    "\u00a0": " ",
    "\u2026": "...",
    "\u200b": "",
}
_ODD = re.compile(r"[^ -~À-ÖØ-öø-žȘ-țẀ-ỹ–£€°½²³]|[<>{}\[\]\\|^`~_@#=*+]")
_LIST = re.compile(r"^\s*(?:[-•–*#>]|\(?\d{1,2}[.)] |\(?[a-zA-Z][.)] |[IVX]+\. |Step \d)")
_WRITING = r"(?:article|essay|passage|paragraph|text|prompt|encyclopedia entry|entry|report)"
_CHAT = re.compile(
    "|".join(
        [
            r"^(?:sure|certainly|of course|here(?:'s| is| are)\b|okay|title:|note:|dear |please )",
            r"^let's ",
            r"as an ai\b|language model|(?:ai|helpful) assistant|i hope this|i'm sorry",
            r"i apologi[sz]e|\bi cannot\b|feel free|let me know",
            r"your (?:question|essay|article|task|request|prompt|text|reader)",
            rf"(?:this|the|following|our|my|an?|encyclopedia) {_WRITING} "
            r"(?:is|was|will|aims|explores|provides|discusses|describes|examines|focuses|covers"
            r"|highlights|has|should|can|would|does|about|above|below)",
            r"in this (?:article|essay|passage|text|section|report|response|chapter|encyclopedia)",
            r"in this context|in (?:conclusion|summary)\b|to (?:summari[sz]e|conclude)\b",
            r"\bwe will (?:explore|discuss|look)|here (?:is|are) (?:a|an|the|some)",
            r"the (?:instruction|prompt|reader|above)\b",
            r"the following (?:is|are|steps|list|table)",
            r"word count|references?:|sources?:|see also|https?|www\.|\.com\b|wikipedia",
            r"\bencyclop(?:a?)edia\b",
        ]
    ),
    re.IGNORECASE,
)
_STUTTER = re.compile(r"\b(\w+) \1 \1\b|\b(the|a|an|of|in|to|and|was|is|by|for|with) \2\b", re.I)
_SPACED = re.compile(r"\s+([,.;:!?])")
_FINISHED = re.compile(r"""[.!?]["')]?$""")


def clean(text: str, gone: Counter[str]) -> list[str]:
    """The paragraphs of a text that pass all rules, or none; `gone` counts what each rule took."""
    kept: list[str] = []
    for raw in normal(text).split("\n"):
        paragraph = " ".join(raw.split())
        if not paragraph:
            continue
        paragraph = whole_sentences(paragraph)
        broken = fault(paragraph)
        if broken:
            gone[f"paragraph: {broken}"] += 1
            if not kept:
                break  # what follows leans on the beginning
            if broken in ("chat or meta", "list or heading"):
                break  # the model has left the text
            continue
        kept.append(paragraph)
    broken = text_fault(kept)
    if broken:
        gone[f"text: {broken}"] += 1
        return []
    return kept


def normal(text: str) -> str:
    """The same text with plain quotation marks, dashes and spaces."""
    for odd, plain in _PLAIN.items():
        text = text.replace(odd, plain)
    return _SPACED.sub(r"\1", re.sub(r" +", " ", text.replace("**", "")))


def whole_sentences(paragraph: str) -> str:
    """A paragraph without its unfinished last sentence."""
    found = sentences(paragraph)
    if found and not _FINISHED.search(found[-1]):
        found.pop()
    return " ".join(found)


def fault(paragraph: str) -> str | None:
    """The first rule that a paragraph breaks."""
    words = paragraph.split()
    checks = {
        "list or heading": _LIST.search(paragraph) is not None or paragraph.endswith(":"),
        "too short": len(words) < SHORTEST_PARAGRAPH,
        "odd character": _ODD.search(paragraph) is not None,
        "chat or meta": _CHAT.search(paragraph) is not None,
        "unbalanced marks": not _balanced(paragraph),
        "stutter": _STUTTER.search(paragraph) is not None,
        "overlong word": any(len(word) > 24 for word in words),
        "small start": not re.match(r"""["'(]?[A-Z0-9À-Ž]""", paragraph),
    }
    return next((name for name, broken in checks.items() if broken), None)


def text_fault(paragraphs: list[str]) -> str | None:
    """The first rule that a whole text breaks."""
    words = " ".join(paragraphs).split()
    if len(words) < SHORTEST_TEXT:
        return "too short"
    found = [sentence for paragraph in paragraphs for sentence in sentences(paragraph)]
    if len(set(found)) < len(found):
        return "repeated sentence"
    openings = Counter(" ".join(sentence.split()[:3]) for sentence in found)
    if len(found) >= 5 and max(openings.values()) > len(found) / 2:
        return "sentences that begin alike"
    runs = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    if sum(runs.values()) - len(runs) > MOST_REPEATED_RUNS * len(words):
        return "repeated runs of words"
    return None


def _balanced(paragraph: str) -> bool:
    return paragraph.count('"') % 2 == 0 and paragraph.count("(") == paragraph.count(")")
