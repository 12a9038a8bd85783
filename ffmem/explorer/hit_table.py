"""The table of a search's hits: its rows, and its heads, which sort."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote_plus

from markupsafe import Markup

from ffmem.analyses.matches import By, Question, Sort
from ffmem.analyses.search import Hit, SearchAnswer
from ffmem.store.memory_page import Evidence
from ffmem.store.search.columns import NUMBERS
from ffmem.text import short_number, visible_token

CACHE_TOKENS = 65_536  # which come again and again


def hit_rows(found: SearchAnswer) -> Markup:
    """Hits as rows of a table."""
    asked = found.question
    wanted = (asked.text, f" {asked.text}") if asked.by == "promotes" else ()
    columns = extra_columns(asked)
    rows = (_hit_row(hit, asked.by, columns, wanted) for hit in found.hits)
    return Markup("\n".join(rows))


MARKS = {"": ("", ""), "word": ("<mark>", "</mark>")}  # others are spans of a class
MARKS |= {mark: (f'<span class="{mark}">', "</span>") for mark in ("last", "next")}


def evidence_text(found: Evidence) -> Markup:
    """A trigger with what was looked for, its last token and the next one marked."""
    parts = []
    for piece in found.pieces:
        start, end = MARKS[piece.mark]
        parts.append(f"{start}{escape(piece.text)}{end}")
    return Markup(f"<bdi>{''.join(parts)}</bdi>")


def _why(hit: Hit) -> str:
    """The evidence of a hit, shown below the tokens that it promotes."""
    parts = []
    if hit.pattern is not None:
        parts.append(f'<span class="found">{escape(hit.pattern)}</span>')
    if hit.evidence is not None:
        parts.append(evidence_text(hit.evidence))
    return f'<p class="why">{" ".join(parts)}</p>' if parts else ""


SCORE_FORMS: dict[By, tuple[float, str]] = {  # a factor, and as many decimals in every line
    "words": (1, "{:.0f}"),
    "ends": (1, "{:.0f}"),
    "meaning": (1, "{:.3f}"),
    "pattern": (100, "{:.0f} %"),
    "phrase": (100, "{:.1f} %"),
}


def _score_cells(hit: Hit, by: By) -> str:
    if hit.score is None:
        return ""
    if hit.logit is None:
        factor, form = SCORE_FORMS[by]
        return f'<td class="n">{form.format(factor * hit.score)}</td>'
    return f'<td class="n">{hit.score + 1:.0f}</td><td class="n">{hit.logit:+.2f}</td>'


def extra_columns(asked: Question) -> tuple[str, ...]:
    """The columns that hits are sorted or chosen by, beside those that all tables have."""
    named = (asked.sort, *(condition.column for condition in asked.conditions))
    wanted = ("probability", "agreement", "class", *NUMBERS)
    return tuple(name for name in wanted if name in named)


def _hit_row(hit: Hit, by: By, columns: Sequence[str], wanted: Sequence[str]) -> str:
    tokens = "".join(_token_span(text, text in wanted) for text in hit.promotes)
    asked = "".join(f'<td class="n">{_extra_cell(hit, name)}</td>' for name in columns)
    address = escape(hit.address)
    return (
        f'<tr><th scope="row"><a href="/memory/{address}">{address}</a></th>'
        f'<td class="few">{tokens}{_why(hit)}</td>{_score_cells(hit, by)}'
        f'<td class="n">{hit.fires:,}</td><td class="n">{hit.mean:.2f}</td>'
        f'<td class="n">{hit.largest:.2f}</td>{asked}</tr>'
    )


def _extra_cell(hit: Hit, name: str) -> str:
    match name:
        case "probability":
            return "–" if hit.probability is None else f"{100 * hit.probability:.3f} %"
        case "agreement":
            return "–" if hit.agreement is None else f"{100 * hit.agreement:.0f} %"
        case "class":
            return escape(hit.kind or "–")
        case _:
            return "–" if hit.weight is None else _even_number(hit.weight)


def _even_number(value: float) -> str:
    """A number of a column: with zeros at its end, so that all have as many digits."""
    return f"{value:#.3g}" if 1e-4 <= abs(value) < 1 else short_number(value)


@lru_cache(maxsize=CACHE_TOKENS)
def _token_span(text: str, asked: bool) -> str:
    return f'<span class="token{" asked" if asked else ""}">{escape(visible_token(text))}</span>'


PARAMETERS = {"text": "q"}  # of a search, where they are not called as the question's fields are


def link(asked: Question, path: str = "/search", first: int = 0, **changes: Any) -> str:
    """The address of a search that differs from this one in a few things."""
    wanted = {**vars(asked), **changes, "first": first or None}
    if wanted["sort"] == "score":
        del wanted["sort"]
    parts = (
        f"{PARAMETERS.get(name, name)}={_quote('true' if value is True else str(value))}"
        for name, value in wanted.items()
        if value not in (None, "") and value is not False
    )
    return f"{path}?{'&'.join(parts)}"


@lru_cache(maxsize=1024)  # a page has a dozen links to searches that differ in one thing
def _quote(text: str) -> str:
    return quote_plus(text)


def heading(asked: Question, name: Sort, title: str) -> Markup:
    """The head of a column of hits: a link that sorts by it, or turns its order round."""
    shown, kind = "", "" if name == "address" else 'class="n"'
    if asked.sort == name:
        rising = asked.reverse != rises(asked, name)
        shown = f'aria-sort="{"ascending" if rising else "descending"}"'
    to = link(asked, sort=name, reverse=asked.sort == name and not asked.reverse)
    return Markup(f'<th scope="col" {kind} {shown}><a href="{escape(to)}">{escape(title)}</a></th>')


def rises(asked: Question, name: Sort) -> bool:
    """Whether the smallest comes first unless it is turned round: addresses and ranks."""
    return name == "address" or (name == "score" and asked.by in ("promotes", "suppresses"))
