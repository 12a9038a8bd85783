"""Text for people: cut to a width, its words and last token marked, spaces made visible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, Protocol

AROUND = 28  # characters on either side of a marked word
READ = 60  # characters of a prefix around no word
COLOUR = 0.75  # of the ground of a token with the largest coefficient
Mark = Literal["", "word", "last", "next"]

# Characters that cannot be seen: controls, and those that only turn, join or part others.
UNSEEN = (
    r"\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)


def visible_token(token: str) -> str:
    """A token with its spaces and control characters visible."""
    return repr(token)[1:-1].replace(" ", "·") or "∅"


def cut(text: str, width: int) -> str:
    """The end of a text, cut at the beginning of a word if possible."""
    if len(text) <= width:
        return text
    end = text[-width:]
    return "…" + (end.partition(" ")[2] or end)


def cut_end(text: str, width: int) -> str:
    """The beginning of a text, cut at the end of a word if possible, with dots for the rest."""
    if len(text) <= width:
        return text
    start = text[: max(width - 1, 0)]
    return (start.rpartition(" ")[0] or start).rstrip() + "…"


class Prefix(Protocol):
    """What was read, `before` + `last`, and the token that followed."""

    @property
    def before(self) -> str:
        """The text up to the last token."""

    @property
    def last(self) -> str:
        """The last token that was read."""

    @property
    def next(self) -> str:
        """The token that followed; empty where the text ends."""


@dataclass(frozen=True)
class Snippet:
    """A prefix for display: the end of what was read, its last token, the next one."""

    before: str
    last: str
    next: str

    @classmethod
    def of(cls, prefix: Prefix, width: int) -> Snippet:
        """A prefix, all but its last token cut to about `width` characters."""
        return cls(cut(prefix.before, width), prefix.last, prefix.next)

    @property
    def following(self) -> str:
        """The next token in brackets."""
        return f"[{self.next or 'end'}]"

    def __str__(self) -> str:
        return f"{self.before}{self.last}{self.following}"


@dataclass  # not frozen: a page has dozens, and a frozen one takes four times as long to make
class Piece:
    """A piece of a prefix: plain text, a searched word, the last token, or the next one."""

    text: str
    mark: Mark = ""


def marked_pieces(prefix: Prefix, spans: Sequence[tuple[int, int]]) -> tuple[Piece, ...]:
    """A prefix with the words at `spans` marked, cut to about a line around the first of them."""
    read = prefix.before + prefix.last
    end = max(len(read) - READ, 0)
    windows = [(end, len(read))]
    if spans and spans[0][0] < end:
        first, stop = spans[0]
        windows = [(first - AROUND, stop + AROUND), (max(len(read) - AROUND, stop), len(read))]
    marks = _mark_stretches(spans, len(prefix.before), len(read))
    pieces = [one for window in _join_windows(windows, read) for one in runs(read, marks, window)]
    return (*pieces, Piece(prefix.next or "end", "next"))


def _mark_stretches(
    spans: Sequence[tuple[int, int]], last: int, end: int
) -> list[tuple[int, int, Mark]]:
    """A whole text as marked pieces: the words in `spans`, the last token, plain text."""
    if not spans:
        return [(0, last, ""), (last, end, "last")]
    found: list[tuple[int, int, Mark]] = []
    place = 0
    for start, stop in [*spans, (end, end)]:
        found += [(place, min(start, last), ""), (max(place, last), start, "last")]
        found.append((start, stop, "word"))
        place = stop
    return [(first, stop, mark) for first, stop, mark in found if first < stop]


def _join_windows(windows: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Windows of a text, merged where they touch and extended to whole words."""
    (first, stop), *rest = windows
    if rest and rest[0][0] <= stop:
        return _join_windows([(first, rest[0][1])], text)
    first, stop = max(first, 0), min(stop, len(text))
    if first and (gap := text.find(" ", first, stop)) >= 0:
        first = gap
    if stop < len(text) and (gap := text.rfind(" ", first + 1, stop)) >= 0:
        stop = gap
    return [(first, stop), *(_join_windows(rest, text) if rest else [])]


def runs(text: str, marks: Sequence[tuple[int, int, Mark]], window: tuple[int, int]) -> list[Piece]:
    """A window of a text as pieces of one mark each; dots replace omitted text before it."""
    first, stop = window
    pieces = [Piece("…")] if first else []
    for start, end, mark in marks:
        if start < stop and end > first:
            pieces.append(Piece(text[max(start, first) : min(end, stop)], mark))
    return pieces


def pieces_text(pieces: Iterable[Piece]) -> str:
    """Pieces on one line: searched words in stars, the next token in brackets."""
    brackets = {"next": "[{}]", "word": "*{}*"}
    return "".join(brackets.get(one.mark, "{}").format(one.text) for one in pieces)


def html_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """An HTML table for a notebook, with a row of column titles; all cells are escaped."""

    def line(words: Iterable[str], cell: str) -> str:
        cells = (f"<{cell} style='text-align:left'>{escape(word)}</{cell}>" for word in words)
        return f"<tr>{''.join(cells)}</tr>"

    return f"<table>{line(columns, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def token_html(text: str, share: float) -> str:
    """A token as HTML; the background is darker the larger its share of the largest coefficient."""
    strength = round(min(max(share, 0.0), 1.0) * COLOUR, 2)
    if not strength:
        return escape(text)
    return f"<span style='background:rgba(238,138,29,{strength})'>{escape(text)}</span>"


def short_number(value: float) -> str:
    """A number with as many digits as one reads."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def size_text(count: int) -> str:
    """A number of bytes as a person says it."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def duration_text(seconds: float) -> str:
    """A length of time as a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
