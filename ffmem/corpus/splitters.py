"""Documents into sentences, by a method that has a name."""

import re
from collections.abc import Callable

from ffmem.corpus.sentence_rule import Span, split_by_rule, trim
from ffmem.errors import CorpusError

Splitter = Callable[[str], list[Span]]

DEFAULT = "rule"
PARAGRAPH = "paragraph"
RULE_VERSION = 1  # raised whenever `rule` would cut any text differently


def split_lines(text: str) -> list[Span]:
    """Each line that is not empty."""
    ends = [found.start() for found in re.finditer("\n", text)] + [len(text)]
    return trim(text, zip([0, *ends], ends, strict=False))


def keep_whole(text: str) -> list[Span]:
    """The document as it is, but for the white space around it."""
    return trim(text, [(0, len(text))])


def split_by_sentencex(text: str) -> list[Span]:
    """By the library sentencex: many languages, but it cuts WikiText's `2 @.@ 5` in two."""
    try:
        from sentencex import get_sentence_boundaries
    except ImportError as error:
        raise CorpusError(
            "the splitter 'sentencex' needs the package of that name: "
            "run `pip install sentencex` or choose the splitter 'rule'"
        ) from error
    ends = [found["end_index"] for found in get_sentence_boundaries("en", text)] + [len(text)]
    return trim(text, zip([0, *ends], ends, strict=False))


SPLITTERS: dict[str, Splitter] = {
    "rule": split_by_rule,
    "line": split_lines,
    "none": keep_whole,
    "sentencex": split_by_sentencex,
    PARAGRAPH: split_by_rule,  # of documents that are paragraphs instead of lines
}


def splitter(name: str) -> Splitter:
    """The splitter of that name."""
    if name not in SPLITTERS:
        raise CorpusError(f"no splitter {name!r}; choose one of {', '.join(SPLITTERS)}")
    return SPLITTERS[name]


def splitter_version(name: str) -> int:
    """The version of a splitter: another one may cut the same text differently."""
    return RULE_VERSION if name in ("rule", PARAGRAPH) else 1
