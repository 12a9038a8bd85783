"""What a memory's page shows of it: triggers, tokens, patterns, weights and the histogram."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from ffmem.analyses.patterns.record import Pattern
from ffmem.store.memory_page import MemoryPage
from ffmem.store.search.lookup import TokenPush
from ffmem.store.slots import Trigger
from ffmem.text import short_number, visible_token

if TYPE_CHECKING:
    from ffmem.scan.histograms import Histogram

CACHE_LINKS = 65_536  # of tokens, which come again and again


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


@lru_cache(maxsize=CACHE_LINKS)
def _token_link(text: str, by: str) -> str:
    return (
        f'<a href="/search?by={by}&amp;q={quote(text, safe="")}">{escape(visible_token(text))}</a>'
    )


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
