"""Long lists written by hand: a template takes several times as long, and pages have a limit.

Every text goes through `escape`; numbers cannot hold markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from html import escape
from urllib.parse import quote

from markupsafe import Markup

from ffmem.explorer.html_fragments import shown_number, shown_token
from ffmem.explorer.queries.memory import ShownToken, ShownTrigger
from ffmem.explorer.queries.search import Answer, Hit

KEPT = 65_536  # pieces of tokens, which come again and again


def trigger_items(triggers: Iterable[ShownTrigger]) -> Markup:
    """Triggers as items of a list: what was read, its last token, the next one, the rest."""
    return Markup(
        "\n".join(
            f'<li data-rank="{one.rank}"><span class="coefficient">{one.coefficient:.2f}</span>'
            f'<p><span class="read">{escape(one.before)}<span class="last">{escape(one.last)}'
            f'</span></span><span class="next">{escape(one.next) or "⏹"}</span>'
            f'<span class="rest">{escape(one.rest)}</span></p></li>'
            for one in triggers
        )
    )


def token_items(tokens: Iterable[ShownToken], by: str) -> Markup:
    """Tokens as items of a list, each with a link to the memories that push it the same way."""
    return Markup(
        "\n".join(
            f'<li><a href="/search?by={by}&amp;{_token_link(token.text)}" '
            f'title="logit {token.logit:+.3f}">{_token_text(token.text)}</a></li>'
            for token in tokens
        )
    )


def hit_rows(found: Answer) -> Markup:
    """What was found as rows of a table."""
    return Markup("\n".join(_hit_row(hit) for hit in found.hits))


def _hit_row(hit: Hit) -> str:
    tokens = "".join(f'<span class="token">{_token_text(text)}</span>' for text in hit.promotes)
    score = "" if hit.score is None else f'<td class="n">{shown_number(hit.score)}</td>'
    agreement = "–" if hit.agreement is None else f"{100 * hit.agreement:.0f} %"
    address = escape(hit.address)
    return (
        f'<tr><th scope="row"><a href="/memory/{address}">{address}</a></th>'
        f'<td class="few">{tokens}</td>{score}<td class="n">{hit.fires:,}</td>'
        f'<td class="n">{shown_number(hit.mean)}</td><td class="n">{shown_number(hit.largest)}</td>'
        f'<td class="n">{100 * hit.probability:.3g} %</td><td class="n">{agreement}</td></tr>'
    )


@lru_cache(maxsize=KEPT)
def _token_text(text: str) -> str:
    return escape(shown_token(text))


@lru_cache(maxsize=KEPT)
def _token_link(text: str) -> str:
    return f"q={quote(text, safe='')}"
