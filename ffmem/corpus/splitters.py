"""Documents into sentences, by a method that has a name.

The method `rule` is one pattern and four word lists, with nothing to install. A sentence ends after
. ! ? … or their like, with the closing quotes and brackets that follow, when the next word can
begin one and the word before is not an abbreviation or an initial. Plain text and WikiText's spaced
tokens (`the end . " Next`) go the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ffmem.errors import CorpusError, shorten

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]

DEFAULT = "rule"
PARAGRAPH = "paragraph"
RULE_VERSION = 1  # raised whenever `rule` would cut any text differently

_CANDIDATE = re.compile(r"[.!?…؟।۔。！？\n]")
# No group is repeated possessively, `(...)*+`: Python 3.11.2 matches that wrongly.
_ENDING = re.compile(
    r"""
    (?P<stop>[.!?…؟।۔]++)                    # ends a sentence when white space follows
    (?P<close>["'”’“»)\]}]*+(?:\[\d++\])*)   # quotes and brackets that stay with it
    (?:\s[»)\]”](?=\s|$))*                   # the same, as spaced tokens
    (?P<quote>\s"(?=\s|$))?                  # a spaced straight quote: closes or opens
    (?=\s|$)
  | (?P<run>[.!?…؟।۔]++)                     # anything else follows: 3.5, example.org
  | [。！？]++[」』”’）〉》]*+                   # ends one without white space
  | (?P<line>\n)(?:\s*\n)?                  # an empty line always does, a line break may
    """,
    re.VERBOSE,
)
_NEXT_WORD = re.compile(r"\s*(?:[\"'“‘«„(\[{¿¡]\s?)*(?P<word><?\w*)")
_LIST_MARK = re.compile(r"(?:\d+|[a-zA-Z])[.)]\s|[-*•]\s")
_GOES_ON = frozenset(",;:.)?!")
_FAR = 5000  # characters; how far back an open quote is looked for
_SHORT_LINE = 60  # characters; a shorter line without a stop is taken for a heading


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Followed by more of the same sentence, whatever comes.
_TITLES = _words(
    "dr mr mrs ms mx prof rev hon gen col lt capt cmdr maj sgt cpl adm gov sen rep pres st mt ft "
    "messrs mme mlle v vs cf approx ca c eds e.g i.e viz cit al z.b d.h bzw est var ssp "
    "subsp"
)
# Followed by more of it when that is a number.
_BEFORE_NUMBERS = _words("no nos fig figs vol vols pp p ch sec eq art ed op nr r")
# These may end a sentence: they do before a capital letter.
_ABBREVIATIONS = _words(
    "etc inc ltd co corp jr sr bros ave blvd rd dept univ jan feb mar apr jun jul aug sep sept oct "
    "nov dec a.m p.m am pm b.c a.d ph.d m.d b.a m.a esq dist"
)
# Words that seldom stand in a name, so that after an acronym or initial they begin a sentence.
_STARTERS = _words(
    "The A An He She It They We You I In On At By For From With After Before When While Where If "
    "As But And Or Nor So Yet However Although Though Because Since This That These Those There "
    "His Her Its Their Our My Your No Not Nobody None Some Most Many Few Both Each All One Another "
    "Then Thus Later Here What Who Why How Only"
)


def _last_word(text: str, start: int, end: int) -> str:
    """The word that ends at `end`, without what opens it; looks back 24 characters at most."""
    words = text[max(start, end - 24) : end].split()
    return words[-1].lstrip("\"'“‘«([") if words and not text[end - 1].isspace() else ""


def _ends_after_dot(word: str, following: str) -> bool:
    """Whether one full stop after `word` ends a sentence that `following` would continue."""
    if len(word) == 1 and word.isupper() and word != "I":
        return following in _STARTERS
    lowered = word.lower()
    if lowered in _TITLES:
        return False
    if lowered in _ABBREVIATIONS or lowered in _BEFORE_NUMBERS:
        return not following.strip("ABCDEFGHIJKLMNOPQRSTUVWXYZ").isdigit()
    if "." in word and all(len(part) == 1 and part.isalpha() for part in word.split(".")):
        return following in _STARTERS  # U.S, R.K
    return True


def _has_word(beginning: str) -> bool:
    """Whether more has been said than quotes, dots or the number of a list item."""
    return any(character.isalpha() for character in beginning) or " " in beginning.strip()


def _ends_at_stop(text: str, start: int, found: re.Match[str]) -> bool:
    """Whether . ! ? and the like end the sentence that began at `start`."""
    following = _NEXT_WORD.match(text, found.end())
    if following is None:
        return True
    word = following["word"]
    if not word:
        return text[following.end() : following.end() + 1] not in _GOES_ON
    if word[0].islower() or (word[0].isdigit() and "(" in following[0]):
        return False
    if found.start() - start < 12 and not _has_word(text[start : found.start()]):
        return False
    if found["stop"] != "." or found["close"]:
        return True
    if len(word) == 1 and text.startswith(".", following.end()):
        word += "."  # an initial, not the article A
    return _ends_after_dot(_last_word(text, start, found.start()), word)


def _ends_at_line(text: str, start: int, found: re.Match[str]) -> bool:
    """Whether a line break that follows no stop ends the sentence that began at `start`."""
    if found.end() - found.start() > 1:
        return True
    end = found.start()
    line = text[max(start, end - _SHORT_LINE) : end].rpartition("\n")[2].rstrip()
    rest = text[found.end() : found.end() + 40].lstrip()
    if not rest:
        return False
    if _LIST_MARK.match(rest):
        return True
    return rest[0].isupper() and len(line) < _SHORT_LINE and not line.endswith((",", ";", "-"))


def _quote_opens(text: str, position: int) -> bool:
    """Whether a straight quote opens: text follows, and its line has an even number before."""
    line = max(text.rfind("\n", 0, position) + 1, position - _FAR)
    follows = not text[position + 1 : position + 40].isspace() and position + 1 < len(text)
    return follows and text.count('"', line, position) % 2 == 0


def _end(text: str, start: int, found: re.Match[str]) -> int | None:
    """The end of the sentence that began at `start`, if it ends at this match."""
    if found["run"]:
        return None
    if found["line"]:
        return found.start() if _ends_at_line(text, start, found) else None
    if found["stop"] and not _ends_at_stop(text, start, found):
        return None
    if found["quote"] and _quote_opens(text, found.end() - 1):
        return found.start("quote")
    return found.end()


def split_by_rule(text: str) -> list[Span]:
    """The sentences of a text by the rule above, as character spans without outer white space."""
    spans: list[Span] = []
    start = position = 0
    while candidate := _CANDIDATE.search(text, position):
        found = _ENDING.match(text, candidate.start())
        assert found is not None, "every candidate opens one of the alternatives"
        position = found.end()
        end = _end(text, start, found)
        if end is not None:
            spans.append((start, end))
            start = end
    spans.append((start, len(text)))
    return trim(text, spans)


def trim(text: str, spans: Iterable[Span]) -> list[Span]:
    """The spans without the white space at either end of each; empty ones are left out."""
    kept = []
    for start, end in spans:
        piece = text[start:end].lstrip()
        if piece:
            first = end - len(piece)
            kept.append((first, first + len(piece.rstrip())))
    return kept


def _split_lines(text: str) -> list[Span]:
    ends = [found.start() for found in re.finditer("\n", text)] + [len(text)]
    return trim(text, zip([0, *ends], ends, strict=False))


def _keep_whole(text: str) -> list[Span]:
    """The document as it is, but for the white space around it."""
    return trim(text, [(0, len(text))])


def _split_by_sentencex(text: str) -> list[Span]:
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
    "line": _split_lines,
    "none": _keep_whole,
    "sentencex": _split_by_sentencex,
    PARAGRAPH: split_by_rule,  # of documents that are paragraphs instead of lines
}


def splitter(name: str) -> Splitter:
    """The splitter of that name."""
    if not isinstance(name, str) or name not in SPLITTERS:
        raise CorpusError(
            f"no splitter {shorten(repr(name))}; choose one of {', '.join(SPLITTERS)}"
        )
    return SPLITTERS[name]


def splitter_version(name: str) -> int:
    """The version of a splitter: another one may cut the same text differently."""
    return RULE_VERSION if name in ("rule", PARAGRAPH) else 1
