"""Templates, and the tokens, numbers and lists as they are written on pages and in JSON.

Every text that enters a template is escaped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ffmem.analyses.claim import interval_text
from ffmem.analyses.matches import By, Question, Sort
from ffmem.analyses.patterns.record import Pattern
from ffmem.analyses.search import Hit, SearchAnswer
from ffmem.annotations.explanations import QUESTIONS
from ffmem.report.rendering import whole_numbers
from ffmem.store.memory_page import Evidence, MemoryPage
from ffmem.store.search.columns import NUMBERS
from ffmem.store.search.lookup import TokenPush
from ffmem.store.slots import TRIGGERS_SHOWN, Trigger
from ffmem.text import visible_token
from ffmem.version import VERSION

if TYPE_CHECKING:
    from ffmem.scan.histograms import Histogram

HERE = Path(__file__).parent
STATIC = HERE / "static"
Link = tuple[str, str]  # what it says, where it leads


def short_number(value: float) -> str:
    """A number with as many digits as one reads."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


CACHE_PIECES = 65_536  # pieces of tokens, which come again and again


def trigger_items(page: MemoryPage, triggers: Sequence[Trigger]) -> Markup:
    """Triggers as items of a list: what was read, its last token, the next one, the rest.

    One agrees where the next token is the one that the value promotes most.
    """
    top = page.promoted[0].text if page.promoted else None
    agrees = [bool(one.next) and one.next == top for one in triggers]
    return Markup(
        "\n".join(
            f'<li data-rank="{rank}" data-sentence="{one.sentence}" '
            f'data-position="{one.position}"{" data-agrees" if agree else ""}>'
            f'<span class="coefficient">{one.coefficient:.2f}</span>'
            f'<p dir="auto"><span class="read">{escape(one.before)}'
            f'<span class="last">{escape(one.last)}</span></span>'
            f'<span class="next{" agrees" if agree else ""}">{escape(one.next) or "⏹"}</span>'
            f'<span class="rest">{escape(one.rest)}</span></p></li>'
            for rank, (one, agree) in enumerate(zip(triggers, agrees, strict=True), 1)
        )
    )


def token_bars(page: MemoryPage, tokens: Sequence[TokenPush], by: str, longest: float) -> Markup:
    """Tokens as bars from the uniform level, each with a link to memories that push it so too.

    `longest` is the logarithm of the largest factor, over both ends of the value.
    """
    scale = 100 / max(longest, 1e-9)
    lines = []
    for token in tokens:
        times = page.times_uniform(token)
        size = min(scale * abs(math.log(max(times, 1e-9))), 100.0)
        lines.append(
            f"<li>{_token_link(token.text, by)}"
            '<svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect width="{size:.1f}" height="1"/></svg>'
            f'<span class="n">{token.logit:+.3f}</span>'
            f'<span class="n soft">×{times:.2f}</span></li>'
        )
    return Markup("\n".join(lines))


def longest_bar(page: MemoryPage) -> float:
    """The logarithm of the largest factor by which a value changes a token's probability."""
    factors = [page.times_uniform(push) for push in (*page.promoted, *page.suppressed)]
    extremes = min(factors), max(factors)
    return max(abs(math.log(max(factor, 1e-9))) for factor in extremes)


def hit_rows(found: SearchAnswer) -> Markup:
    """Hits as rows of a table."""
    asked = found.question
    wanted = (asked.text, f" {asked.text}") if asked.by == "promotes" else ()
    columns = extra_columns(asked)
    rows = (_hit_row(hit, asked.by, columns, wanted) for hit in found.hits)
    return Markup("\n".join(rows))


PATTERNS_SHOWN = 3  # of an annotator; the others are folded
PatternGroup = tuple[str, list[Pattern], list[Pattern]]  # annotator, those shown, those folded


def pattern_groups(patterns: Sequence[Pattern]) -> list[PatternGroup]:
    """Each annotator's patterns, in order: the few that cover most triggers, and the rest.

    The first covers most triggers, the next most of those that are not covered yet, and so on.
    """
    groups = []
    for annotator in dict.fromkeys(one.annotator for one in patterns):
        left = [one for one in patterns if one.annotator == annotator]
        order: list[Pattern] = []
        covered: set[int] = set()
        while left:
            best = max(left, key=lambda one: (len(set(one.ranks) - covered), len(one.ranks)))
            left.remove(best)
            order.append(best)
            covered |= set(best.ranks)
        groups.append((annotator, order[:PATTERNS_SHOWN], order[PATTERNS_SHOWN:]))
    return groups


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


def _token_text(text: str) -> str:
    return escape(visible_token(text))


@lru_cache(maxsize=CACHE_PIECES)
def _token_span(text: str, asked: bool) -> str:
    return f'<span class="token{" asked" if asked else ""}">{_token_text(text)}</span>'


@lru_cache(maxsize=CACHE_PIECES)
def _token_link(text: str, by: str) -> str:
    return f'<a href="/search?by={by}&amp;q={quote(text, safe="")}">{_token_text(text)}</a>'


def weight_items(weights: Mapping[str, float | str]) -> Markup:
    """A memory's weights as terms and numbers."""
    return Markup(
        "\n".join(
            f"<div><dt>{escape(name.replace('_', ' '))}</dt>"
            f"<dd>{escape(value) if isinstance(value, str) else short_number(value)}</dd></div>"
            for name, value in weights.items()
        )
    )


WEIGHT_NOTES = {  # by the name of a column
    "class": "what the memory does to the direction that its key detects",
    "role": "prediction or suppression of few tokens, where the value's logits are that peaked",
    "key_norm": "length of the key",
    "gate_norm": "length of the gate",
    "value_norm": "length of the value",
    "key_bias": "added to the key's product before the activation",
    "gate_bias": "added to the gate's product before the activation",
    "key_value": "cosine of key and value",
    "gate_value": "cosine of gate and value",
    "gate_key": "cosine of gate and key",
    "logit_mean": "mean of the value's logits over the vocabulary",
    "logit_variance": "their variance",
    "logit_skew": "their skewness: above 0 few tokens are pushed up far",
    "logit_kurtosis": "their kurtosis: 3 for a normal distribution, more where few stand out",
    "cosine_variance": "variance over tokens of the cosine of value and output embedding",
    "weak_share": "share of the value's squared length in the weakest twentieth of the output "
    "embedding's directions; 0.05 by chance",
    "frequency": "correlation of the value's logits with log token frequency",
    "entropy_score": "high for a long value that moves all logits alike",
    "twin": "the memory of the layer that is most like it",
    "twin_cosine": "how like: the smallest of the cosines of key, gate and value; 1 is a duplicate",
}


def weight_notes(weights: Mapping[str, float | str]) -> Markup:
    """A memory's weights as text."""
    return _weight_notes(tuple(weights))


@lru_cache(maxsize=4)
def _weight_notes(names: tuple[str, ...]) -> Markup:
    lines = (
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(WEIGHT_NOTES[name])}</dd>"
        for name in names
        if name in WEIGHT_NOTES
    )
    return Markup(f'<dl class="parameters">{"".join(lines)}</dl>')


LEVELS = 8  # shades of the map


def stripes(shares: Sequence[float]) -> list[tuple[int, str]]:
    """One path a shade: the places of all blocks whose share has that shade."""
    paths: dict[int, list[str]] = defaultdict(list)
    for place, share in enumerate(shares):
        level = min(
            math.ceil(math.sqrt(share) * LEVELS), LEVELS
        )  # the root tells small shares apart
        paths[level].append(f"M{place} 0h1v1h-1z")
    return [(level, "".join(parts)) for level, parts in sorted(paths.items())]


LEFT, PLOT, HIGH, LOW = 46, 374, 130, 34  # pixels: axis, bars, their height, the labels below


def histogram(found: Histogram, threshold: float | None) -> Markup:
    """Coefficients in powers of two, counts on a logarithmic scale; told in words too.

    Where firing has a threshold, which is a power of two as well, a line stands there.
    """
    powers = max(math.ceil(math.log10(max(found.counts))), 1)
    step, names = PLOT / len(found.counts), [short_number(edge) for edge in found.edges]

    def height(count: int) -> float:
        return HIGH * (math.log10(count) + 0.15) / (powers + 0.15) if count else 0.0

    lines = "".join(
        f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>'
        for power, y in ((power, HIGH - height(10**power)) for power in range(powers + 1))
    )
    boxes = "".join(
        f'<rect x="{LEFT + place * step + 1:.1f}" y="{HIGH - tall:.1f}" '
        f'width="{step - 2:.1f}" height="{tall:.1f}">'
        f"<title>{low} to {high}: {count:,}</title></rect>"
        for place, (low, high, count, tall) in enumerate(
            zip(names, names[1:], found.counts, map(height, found.counts), strict=False)
        )
    )
    last = len(found.counts)
    labels = "".join(
        f'<text x="{LEFT + place * step:.1f}" y="{HIGH + 15}" text-anchor="middle">'
        f"{names[place]}</text>"
        for place in range(last % 2, last + 1, 2)
    )
    if threshold in found.edges:
        at = LEFT + found.edges.index(threshold) * step
        lines += f'<line class="threshold" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{HIGH}"/>'
    bars_text = "; ".join(
        f"up to {high}: {count:,}" for high, count in zip(names[1:], found.counts, strict=False)
    )
    return Markup(  # numbers only, so that nothing needs escaping
        f'<svg class="bars histogram" viewBox="0 -20 {LEFT + PLOT + 24} {HIGH + LOW + 20}" '
        f'role="img" aria-label="Prefixes by coefficient: {bars_text}">{lines}{boxes}{labels}'
        f'<text x="{LEFT + PLOT / 2}" y="{HIGH + LOW - 3}" text-anchor="middle">coefficient</text>'
        '<text x="0" y="-10">prefixes</text>'
        "</svg>"
    )


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


@cache
def templates() -> Environment:
    """The environment that all pages are made with, compiled once for all apps of a process."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(version=VERSION, triggers_shown=TRIGGERS_SHOWN, questions=QUESTIONS)
    for function in (
        extra_columns,
        evidence_text,
        heading,
        histogram,
        hit_rows,
        link,
        longest_bar,
        pattern_groups,
        stripes,
        token_bars,
        trigger_items,
        weight_items,
        weight_notes,
    ):
        environment.globals[function.__name__] = function
    environment.filters.update(
        token=visible_token, number=short_number, whole=whole_numbers, shown=interval_text
    )
    for name in environment.list_templates():
        environment.get_template(name)  # read now, so that no page waits for it
    return environment


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A template, filled, as an answer."""
    return HTMLResponse(
        fill_template(request.app, request.scope["path"], template, **values), status
    )


def fill_template(app: FastAPI, path: str, template: str, **values: Any) -> str:
    """A template, filled; `path` is the page's own."""
    values |= {"path": path, "study": app.state.context.name, "navigation": app.state.navigation}
    return templates().get_template(template).render(values)
