"""The paper's first figure for any text: from what was read through keys and values to a word.

Everything stands at pixels: Vega-Lite draws boxes, curves and words, and so all of it is one SVG
that a talk can show. Words are in a grey that is legible on white and on black.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.lookup.measure import LayerLookup, ShownMemory
from ffmem.figures import style
from ffmem.figures.style import Row
from ffmem.text import cut_end, short_number, visible_token

WIDTH, LOWEST = 1080, 300  # pixels: of the figure, and its height at least
LINE = 76  # from one memory to the next, at most
CHIP = 32  # pixels from one token of the text to the next
INPUT = (0, 112)  # left and right end of each column
KEYS = (186, 520)
VALUES = (616, 800)
SUM = (900, 1080)
CIRCLE = 858  # where the sum is drawn
LETTER = 6.4  # pixels of a letter of 12 pixels
THIN = 0.05  # weight of the curves to keys that fire
STEPS = 24  # points of a curve
FAINT = 0.85  # opacity of a silent memory
SMALLEST = 0.001  # coefficient that is written out


def lookup_chart(found: LayerLookup) -> Any:
    """Input, keys with coefficients, values, the layer's sum, the next word; left to right."""
    known = any(one.stands_for for one in found.shown)
    height = max(LINE * len(found.shown), LOWEST) if known else LOWEST
    places = [height * (row + 0.5) / len(found.shown) for row in range(len(found.shown))]
    middle, most = height / 2, height // CHIP
    tokens = found.read[-most:]
    if len(found.read) > most:
        tokens = ("…", *tokens[1:])
    top = middle - CHIP * (len(tokens) - 1) / 2
    last = top + CHIP * (len(tokens) - 1)
    largest = max(abs(one.coefficient) for one in found.shown) or 1.0
    weights = [
        0.0 if one.role == "silent" else abs(one.coefficient) / largest for one in found.shown
    ]
    reads = [THIN if weight > 0 else 0.0 for weight in weights]
    curves = [
        curve((start, first), (end, second), wide)
        for y, read, weight in zip(places, reads, weights, strict=True)
        for start, first, end, second, wide in (
            (INPUT[1], last, KEYS[0], y, read),
            (KEYS[1], y, VALUES[0], y, weight),
            (VALUES[1], y, CIRCLE - 16, middle, weight),
        )
    ]
    curves.append(curve((CIRCLE + 16, middle), (SUM[0], middle), 0.5))
    parts = [
        lines(curves, height),
        *chips(tokens, top, height),
        *memories(found.shown, places, height),
        *sums(found, middle, height),
        words(headings(found), height, fontSize=12, fontWeight="bold", align="left"),
    ]
    chart = style.with_size(alt.layer(*parts), WIDTH, height + 24)
    title = f"Layer {found.layer} of {found.model} as key-value memories"
    return style.with_caption(chart, title, _caption_of(found), 3)


def _caption_of(found: LayerLookup) -> str:
    """What is drawn, and what is not."""
    keys = turned = ""
    if any(one.stands_for for one in found.shown):
        keys = (
            " Keys fire on what is written in them: patterns of their triggers in a scan, or "
            "triggers, with the next token in brackets."
        )
    if any(one.coefficient < 0 for one in found.shown):
        turned = "; where it is negative, the tokens are those that minus the value promotes"
    others = "" if found.layer == found.layers else " and the layers above it"
    return (
        f"{found.active:,} of the layer's {found.memories:,} memories fire after the last token. "
        f"Shown are those that add most, a weak one and a silent one.{keys} The number is the "
        f"coefficient{turned}. The layer adds every value, each times its coefficient. The next "
        f"word comes from this sum together with the residual{others}."
    )


def headings(found: LayerLookup) -> list[Row]:
    """Above the columns."""
    names = {
        INPUT: "read",
        KEYS: "keys fire on" if any(one.stands_for for one in found.shown) else "keys",
        VALUES: "values promote",
        SUM: "the layer adds",
    }
    return [{"x": ends[0], "y": -8, "words": name} for ends, name in names.items()]


def curve(start: tuple[float, float], end: tuple[float, float], weight: float) -> list[Row]:
    """Points from one place to another, level at both ends; as wide as the weight, dotted at 0."""
    rows: list[Row] = []
    for step in range(STEPS + 1):
        along = step / STEPS
        bend = along * along * (3 - 2 * along)
        x, y = start[0] + (end[0] - start[0]) * along, start[1] + (end[1] - start[1]) * bend
        rows.append({"x": x, "y": y, "weight": weight})
    return rows


def lines(curves: list[list[Row]], height: float) -> alt.LayerChart:
    """All curves."""
    drawn = []
    for points in curves:
        weight = points[0]["weight"]
        look = {"strokeWidth": 1 + 5 * weight, "opacity": 0.3 + 0.3 * weight}
        if weight == 0:
            look = {"strokeWidth": 1, "opacity": 0.45, "strokeDash": [2, 3]}
        drawn.append(
            style.base(points)
            .mark_line(color=style.INK, tooltip=False, **look)
            .encode(**at(height), order=alt.Order("x:Q"))
        )
    return alt.layer(*drawn)


def at(height: float) -> dict[str, Any]:
    """Pixels as coordinates: from the left, and from the top."""
    return {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, WIDTH], nice=False)),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[height, -24], nice=False)),
    }


def words(rows: list[Row], height: float, **look: Any) -> alt.Chart:
    """Texts at places."""
    settings = {"color": style.INK, "fontSize": 12, "baseline": "middle", "tooltip": False, **look}
    opacity = alt.Opacity("opacity:Q", scale=None) if "opacity" in rows[0] else alt.Undefined
    return (
        style.base(rows)
        .mark_text(**settings)
        .encode(**at(height), text=alt.Text("words:N"), opacity=opacity)
    )


def boxes(
    ends: tuple[float, float], ys: list[float], size: float, colour: str, height: float, **look: Any
) -> alt.Chart:
    """Rounded boxes below one another."""
    rows = [{"x": ends[0], "right": ends[1], "y": y - size / 2, "bottom": y + size / 2} for y in ys]
    settings = {"fillOpacity": 0.12, "strokeOpacity": 0.8, "cornerRadius": 6, **look}
    return (
        style.base(rows)
        .mark_rect(fill=colour, stroke=colour, tooltip=False, **settings)
        .encode(**at(height), x2=alt.X2("right:Q"), y2=alt.Y2("bottom:Q"))
    )


def chips(tokens: tuple[str, ...], top: float, height: float) -> list[alt.Chart]:
    """The tokens that were read, one below the other; the last one is what the keys read."""
    ys = [top + CHIP * row for row in range(len(tokens))]
    middle = sum(INPUT) / 2
    rows = [
        {"x": middle, "y": y, "words": fit([token], INPUT)}
        for y, token in zip(ys, tokens, strict=True)
    ]
    found = [
        boxes(INPUT, ys[-1:], CHIP - 6, style.BLUE, height, fillOpacity=0.35),
        words(rows[-1:], height, align="center", fontWeight="bold", fontSize=13),
    ]
    if len(tokens) > 1:
        found.append(boxes(INPUT, ys[:-1], CHIP - 6, style.GREY, height, strokeOpacity=0.3))
        found.append(words(rows[:-1], height, align="center"))
    return found


def memories(shown: tuple[ShownMemory, ...], places: list[float], height: float) -> list[alt.Chart]:
    """Boxes of keys and values, with the coefficient between them."""
    names: list[Row] = []
    roles: list[Row] = []
    reasons: list[Row] = []
    values: list[Row] = []
    numbers: list[Row] = []
    between = (KEYS[1] + VALUES[0]) / 2
    for one, y in zip(shown, places, strict=True):
        look = {"opacity": FAINT if one.role == "silent" else 1.0}
        texts = [cut_end(text, int((KEYS[1] - KEYS[0] - 20) / LETTER)) for text in one.stands_for]
        first = y - 9 * len(texts)
        names.append({"x": KEYS[0] + 10, "y": first, "words": str(one.address), **look})
        roles.append({"x": KEYS[1] - 10, "y": first, "words": one.role, "opacity": FAINT})
        reasons += [
            {"x": KEYS[0] + 10, "y": first + 18 * (row + 1), "words": text, **look}
            for row, text in enumerate(texts)
        ]
        values.append({"x": VALUES[0] + 10, "y": y, "words": fit(one.tokens, VALUES), **look})
        numbers.append({"x": between, "y": y - 14, "words": number(one.coefficient), **look})
    size = min(LINE, height / len(shown)) - 12
    loud = [y for one, y in zip(shown, places, strict=True) if one.role != "silent"]
    mute = [y for one, y in zip(shown, places, strict=True) if one.role == "silent"]
    found = [boxes(KEYS, loud, size, style.BLUE, height)]
    found.append(boxes(VALUES, loud, size, style.GREEN, height))
    if mute:
        dashed = {"strokeDash": [4, 3], "fillOpacity": 0.04, "strokeOpacity": 0.5}
        found.append(boxes(KEYS, mute, size, style.BLUE, height, **dashed))
        found.append(boxes(VALUES, mute, size, style.GREEN, height, **dashed))
    found.append(words(names, height, align="left", fontWeight="bold"))
    found.append(words(roles, height, align="right"))
    if reasons:
        found.append(words(reasons, height, align="left"))
    found.append(words(values, height, align="left"))
    found.append(words(numbers, height, align="center", fontWeight="bold", fontSize=15))
    return found


def sums(found: LayerLookup, middle: float, height: float) -> list[alt.Chart]:
    """The sum and the tokens it promotes; below, the words that the model finds likeliest."""
    box = 24 * len(found.adds) + 12
    first = middle - 12 * (len(found.adds) - 1)
    adds = [
        {"x": SUM[0] + 10, "y": first + 24 * row, "words": fit([token], SUM)}
        for row, token in enumerate(found.adds)
    ]
    below = middle + box / 2 + 30
    follows = [
        {"x": SUM[0] + 10, "y": below + 22 * (row + 1), "words": fit([one.text], SUM)}
        for row, one in enumerate(found.follows)
    ]
    shares = [
        {"x": SUM[1], "y": row["y"], "words": f"{100 * one.probability:.0f} %"}
        for row, one in zip(follows, found.follows, strict=True)
    ]
    circle = style.base([{"x": CIRCLE, "y": middle}]).mark_point(
        size=900, fill=style.ORANGE, fillOpacity=0.2, stroke=style.ORANGE, opacity=1, tooltip=False
    )
    title = [{"x": SUM[0], "y": below, "words": "next word"}]
    return [
        circle.encode(**at(height)),
        words([{"x": CIRCLE, "y": middle, "words": "Σ"}], height, align="center", fontSize=18),
        boxes(SUM, [middle], box, style.ORANGE, height),
        words(adds, height, align="left"),
        words(title, height, align="left", fontWeight="bold"),
        words(follows[:1], height, align="left", fontWeight="bold", fontSize=14),
        words(follows[1:], height, align="left"),
        words(shares, height, align="right"),
    ]


def number(coefficient: float) -> str:
    """A coefficient, to three digits or so."""
    if 0 < abs(coefficient) < SMALLEST:
        return "≈ 0"
    return short_number(coefficient).replace("-", "−")


def fit(tokens: Any, ends: tuple[float, float]) -> str:
    """As many different tokens as there is room for, their spaces left out."""
    room, line = int((ends[1] - ends[0] - 16) / LETTER), ""
    for name in dict.fromkeys(token.strip() or visible_token(token) for token in tokens):
        longer = f"{line} · {name}" if line else name
        if len(longer) > room:
            break
        line = longer
    return line or cut_end(str(next(iter(tokens), "")).strip(), room)
