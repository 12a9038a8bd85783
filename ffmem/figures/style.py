"""The look of every figure: sizes, colours, axes, captions, boxes. For light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

WIDTH, HEIGHT = 440, 240
INK = "#6f7782"  # text and axes: legible on white and on black
BLUE, ORANGE, GREEN, PURPLE, GREY = "#3b82c4", "#d97a2b", "#3f9e6b", "#9a6fc2", "#9aa1ab"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
CONTROL = GREY  # what a number is compared with is always grey
LINE = 18  # characters of a caption that fit in 100 pixels

Row = dict[str, Any]
_NOT_XML = {  # what no SVG can hold, and the program that draws dies of; tokens may be such bytes
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"},
    **dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD),
}


@dataclass(frozen=True)
class FigureText:
    """How to read one figure, and what the paper says of it."""

    figure: str
    read: str
    paper: str


def base(rows: Sequence[Row]) -> alt.Chart:
    """A chart over rows of plain values; NaN becomes missing, control characters visible."""
    clean = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return alt.Chart(alt.Data(values=clean))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(_NOT_XML)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def layer_axis(title: str = "layer") -> alt.X:
    """Layers from left to right, each a place of its own."""
    return alt.X("layer:O", title=title, axis=alt.Axis(labelAngle=0, labelOverlap="greedy"))


def percent(field: str, title: str, **scale: Any) -> alt.Y:
    """A share from 0 to 1 shown in per cent."""
    return alt.Y(
        f"{field}:Q",
        title=title,
        axis=alt.Axis(format="~%"),
        scale=alt.Scale(zero=True, nice=True, **scale),
    )


def series(field: str, names: Sequence[str], colours: Sequence[str] = COLOURS) -> alt.Color:
    """One colour per series, in the order given; the legend stands below."""
    scale = alt.Scale(domain=list(names), range=list(colours[: len(names)]))
    columns = len(names) if len(names) == 4 and max(map(len, names)) < 14 else 3
    legend = alt.Legend(
        title=None,
        orient="bottom",
        columns=columns,
        labelLimit=260,
        symbolLimit=0,
        symbolOpacity=1,
    )
    return alt.Color(f"{field}:N", scale=scale, legend=legend)


def box(chart: alt.Chart, x: alt.X, title: str, colour: str = BLUE, **scale: Any) -> alt.LayerChart:
    """A box a place from the fields q05, q25, q50, q75, q95: whiskers hold 90 % of the cases."""
    axis = {"title": title, "scale": alt.Scale(**scale)}
    whisker = chart.mark_rule(color=colour).encode(x=x, y=alt.Y("q05:Q", **axis), y2="q95:Q")
    body = chart.mark_bar(color=colour, opacity=0.55, size=14).encode(
        x=x, y=alt.Y("q25:Q", **axis), y2="q75:Q"
    )
    middle = chart.mark_tick(color=colour, thickness=3, size=16).encode(
        x=x, y=alt.Y("q50:Q", **axis)
    )
    return alt.layer(whisker, body, middle)


def quantile_fields(quantiles: Sequence[float]) -> Row:
    """The fields that `box` draws."""
    return dict(zip(("q05", "q25", "q50", "q75", "q95"), quantiles, strict=True))


def with_size(chart: Any, width: int = WIDTH, height: int = HEIGHT) -> Any:
    """The size of one panel."""
    return chart.properties(width=width, height=height)


def by_group(chart: Any, field: str, groups: Sequence[str]) -> Any:
    """One panel per group; a single group needs no panel."""
    if len(groups) < 2:
        return with_size(chart)
    header = alt.Header(title=None, labelColor=INK, labelFontSize=12)
    panel = with_size(chart, width=WIDTH * 2 // 3)
    return panel.facet(facet=alt.Facet(f"{field}:N", header=header, sort=list(groups)), columns=3)


def with_caption(chart: Any, title: str, caption: str, panels: int = 1) -> Any:
    """Put title and caption above a figure: what it shows, and beside which control."""
    wide = LINE * (WIDTH if panels == 1 else WIDTH * 2 // 3 * min(panels, 3)) // 100
    heading = alt.TitleParams(
        title,
        subtitle=wrap_text(caption, wide),
        anchor="start",
        color=INK,
        subtitleColor=INK,
        fontSize=14,
        subtitleFontSize=11,
        offset=12,
    )
    return (
        chart.properties(title=heading, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            gridColor=INK,
            gridOpacity=0.2,
            domainColor=INK,
            tickColor=INK,
            titleFontWeight="normal",
        )
        .configure_legend(labelColor=INK, titleColor=INK)
    )


def wrap_text(text: str, width: int) -> list[str]:
    """The text in lines of about so many characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
