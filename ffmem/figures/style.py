"""The look of every figure: sizes, colours, axes, captions, boxes. For light and dark pages.

Charts name their fields by channels, `y=alt.Y("low:Q")`: for `y="low:Q"` Altair searches its whole
schema, which takes longer than everything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import altair as alt

WIDTH, HEIGHT = 640, 280
PANELS = {1: WIDTH, 2: 400}  # pixels of one panel, by how many stand in a row
NARROW = 280  # of three
LEAST_SHARE, LEAST_MEAN = 30, 10  # cases below which a share, or a mean, is not drawn
INK = "#6f7782"  # text and axes: legible on white and on black
BLUE, ORANGE, GREEN, PURPLE, GREY = "#3b82c4", "#d97a2b", "#3f9e6b", "#9a6fc2", "#9aa1ab"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
BESIDE = "models without what was learned"  # the series that `beside_ticks` draws
CONTROL = GREY  # what a number is compared with is always grey
LINE = 17  # characters of a caption that fit in 100 pixels
TITLE_SIZE = 15  # pixels, of a figure's title; panels have smaller ones
LETTER, SYMBOL = 7, 36  # pixels: of a letter of a legend, of what stands beside its words

Row = dict[str, Any]
_ENOUGH = re.compile(r"\(?!isValid\(datum\.(\w+)\) \|\| datum\.\1 >= (\d+)\)?")  # see enough_cases
_NOT_XML = {  # what no SVG can hold, and the program that draws dies of; tokens may be such bytes
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"},
    **dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD),
}


class ChartRows(alt.Data):
    """Immutable rows that charts share; copying a chart does not copy them."""

    def __deepcopy__(self, _others: object) -> ChartRows:
        return self


def base(rows: Sequence[Row], enough: str | None = None) -> alt.Chart:
    """A chart over rows of plain values; NaN becomes missing, control characters visible.

    Rows for which `enough`, an expression such as `enough_cases`, is false are kept but not drawn.
    """
    clean = [{name: _plain(value) for name, value in row.items()} for row in rows]
    chart = alt.Chart(ChartRows(values=clean))
    return chart if enough is None else chart.transform_filter(enough)


def enough_cases(field: str = "n", least: int = LEAST_SHARE) -> str:
    """The expression that is true for rows with enough cases, and for rows without a count."""
    return f"!isValid(datum.{field}) || datum.{field} >= {least}"


def draws_nothing(spec: dict[str, Any]) -> bool:
    """Whether every point of a chart has too few cases, so that only an empty frame is left."""
    return not any(_points(spec, spec.get("datasets", {}), []))


def _points(node: Row, datasets: dict[str, Any], rows: list[Row]) -> Iterator[int]:
    """The number of rows that each mark draws; a line at a constant, such as zero, draws none."""
    if data := node.get("data"):
        rows = datasets.get(data.get("name"), data.get("values", []))
    tests = [_ENOUGH.fullmatch(str(one.get("filter"))) for one in node.get("transform", ())]
    for field, least in [(test[1], int(test[2])) for test in tests if test]:
        rows = [row for row in rows if row.get(field) is None or row[field] >= least]
    if "mark" in node:
        yield len(rows) if len(rows) > 1 or tests else 0
    parts = [node.get(kind, []) for kind in ("layer", "concat", "hconcat", "vconcat")]
    for part in (*chain.from_iterable(parts), *filter(None, [node.get("spec")])):
        yield from _points(part, datasets, rows)


def few_cases_note(rows: Sequence[Row], field: str = "n", least: int = LEAST_SHARE) -> str:
    """For a caption: how many points have too few cases to be drawn; empty if none."""
    few = sum(row[field] < least for row in rows if row.get(field) is not None)
    if not few:
        return ""
    share = "All" if few == len(rows) else f"{few} of the"
    return f" {share} {len(rows)} points have fewer than {least} cases and are not drawn."


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(_NOT_XML)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def layer_axis() -> alt.X:
    """The axis of layers, from left to right, as categories."""
    return alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap="greedy"))


def percent(field: str, title: str, **scale: Any) -> alt.Y:
    """A share from 0 to 1 shown in per cent."""
    return alt.Y(
        f"{field}:Q",
        title=title,
        axis=alt.Axis(format="~%"),
        scale=alt.Scale(zero=True, nice=True, **scale),
    )


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """The tooltip of a mark."""
    return [alt.Tooltip(field) for field in fields]


def series(field: str, names: Sequence[str], colours: Sequence[str] = COLOURS) -> alt.Color:
    """One colour per series, in the order given; the legend is below, in rows that fit."""
    scale = alt.Scale(domain=list(names), range=list(colours[: len(names)]))
    legend = alt.Legend(
        title=None,
        orient="bottom",
        columns=max(1, min(len(names), WIDTH // (LETTER * max(map(len, names)) + SYMBOL))),
        labelLimit=0,
        symbolLimit=0,
        symbolOpacity=1,
    )
    return alt.Color(f"{field}:N", scale=scale, legend=legend)


def interval_band(
    data: alt.Chart, x: alt.X, colour: alt.Color, low: str = "low", high: str = "high"
) -> alt.Chart:
    """The intervals around lines, as bands of the lines' colours."""
    return data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y(f"{low}:Q"), y2=alt.Y2(f"{high}:Q"), color=colour
    )


def band_of(
    data: alt.Chart, field: str, names: Sequence[str], label: str, by: Sequence[str] = ()
) -> alt.Chart:
    """Several series as one band by layer, as controls, whose lines would lie on each other.

    `label` is its name in the legend of `series`, which the caller encodes as the colour. The rows
    of the chart keep every series.
    """
    ends = [
        alt.AggregatedFieldDef(op=op, field=field, **{"as": name})
        for op, name in (("min", "lowest"), ("max", "highest"))
    ]
    between = (
        data.transform_filter({"field": "series", "oneOf": list(names)})
        .transform_aggregate(ends, groupby=["layer", *by])
        .transform_calculate(series=f"'{label}'")
    )
    return between.mark_area(opacity=0.4, line=True, point=alt.OverlayMarkDef(size=10)).encode(
        x=layer_axis(), y=alt.Y("highest:Q"), y2=alt.Y2("lowest:Q")
    )


def own_rows(data: alt.Chart) -> alt.Chart:
    """The study's own rows, without those of its controls."""
    return data.transform_filter("!isValid(datum.beside)")


def beside_band(
    data: alt.Chart,
    beside: Sequence[Row],
    by: Sequence[str] = ("layer",),
    x: alt.X | None = None,
) -> list[alt.Chart]:
    """The range of the controls by layer, from the lowest to the highest; nothing without any.

    Their rows have a number `beside` and are among the chart's, which `own_rows` leaves out.
    """
    if not beside:
        return []
    ends = [
        alt.AggregatedFieldDef(op=op, field="beside", **{"as": name})
        for op, name in (("min", "lowest"), ("max", "highest"))
    ]
    controls = data.transform_filter("isValid(datum.beside)")
    band = controls.transform_aggregate(ends, groupby=list(by))
    edge = alt.OverlayMarkDef(color=INK, strokeDash=[3, 2], opacity=1)
    return [
        band.mark_area(color=INK, opacity=0.35, line=edge).encode(
            x=layer_axis() if x is None else x, y=alt.Y("highest:Q"), y2=alt.Y2("lowest:Q")
        )
    ]


def beside_ticks(data: alt.Chart, beside: Sequence[Row], **places: Any) -> list[alt.Chart]:
    """A tick for each control in a chart of bars that lie, where there is no bar."""
    if not beside:
        return []
    ticks = data.transform_filter("isValid(datum.beside)")
    return [ticks.mark_tick(color=INK, thickness=2).encode(x=alt.X("beside:Q"), **places)]


def beside_note(beside: Sequence[Row], what: str = "the same", mark: str = "") -> str:
    """For a caption: what the range of the controls is; empty without any."""
    if not beside:
        return ""
    models = len({row["control"] for row in beside})
    if models == 1:
        return f" {mark or 'Dashed'}: {what} in the model with its weights in random order."
    return f" {mark or 'Shaded'}: {what} in {models} models with permuted or random weights."


def box(
    chart: alt.Chart, x: alt.X, title: str, axis: alt.Axis | None = None, **scale: Any
) -> alt.LayerChart:
    """One box per category from the fields q05, q25, q50, q75, q95; whiskers span 90 %."""
    y = {"title": title, "axis": axis or alt.Undefined, "scale": alt.Scale(**scale)}
    whisker = chart.mark_rule(color=BLUE).encode(x=x, y=alt.Y("q05:Q", **y), y2=alt.Y2("q95:Q"))
    body = chart.mark_bar(color=BLUE, opacity=0.55, size=14).encode(
        x=x, y=alt.Y("q25:Q", **y), y2=alt.Y2("q75:Q")
    )
    middle = chart.mark_tick(color=BLUE, thickness=3, size=16).encode(x=x, y=alt.Y("q50:Q", **y))
    return alt.layer(whisker, body, middle)


def quantile_fields(quantiles: Sequence[float]) -> Row:
    """The fields that `box` draws."""
    return dict(zip(("q05", "q25", "q50", "q75", "q95"), quantiles, strict=True))


def with_size(chart: Any, width: int = WIDTH, height: int = HEIGHT) -> Any:
    """The chart itself, with the size of one panel."""
    chart.width, chart.height = width, height
    return chart


def panel_width(panels: int) -> int:
    """The width of one of several panels, at most three per row."""
    return PANELS.get(panels, NARROW)


def by_group(chart: Any, field: str, groups: Sequence[str]) -> Any:
    """One panel per group, in the order given; a single group needs no panel."""
    if len(groups) < 2:
        return with_size(chart)
    header = alt.Header(title=None, labelColor=INK, labelFontSize=13)
    facet = alt.Facet(f"{field}:N", header=header, sort=list(groups))
    panels = with_size(chart, width=panel_width(len(groups))).facet(facet=facet, columns=3)
    return panels.properties(transform=[{"filter": {"field": field, "oneOf": list(groups)}}])


def with_caption(chart: Any, title: str, caption: str, panels: int = 1) -> Any:
    """Put title and caption above a figure: what it shows, and which control.

    The chart itself is changed: Altair takes longer to copy a chart than to make it.
    """
    wide = LINE * panel_width(panels) * min(panels, 3) // 100
    heading = alt.TitleParams(
        title,
        subtitle=wrap_text(caption, wide),
        anchor="start",
        color=INK,
        subtitleColor=INK,
        fontSize=TITLE_SIZE,
        subtitleFontSize=12,
        offset=12,
    )
    chart.title, chart.background, chart.config = heading, "transparent", look()
    return chart


def look() -> alt.Config:
    """Apply colours that are legible on white and on black, and a tooltip on every mark."""
    return alt.Config(
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=INK,
            titleColor=INK,
            labelFontSize=12,
            titleFontSize=13,
            gridColor=INK,
            gridOpacity=0.2,
            domainColor=INK,
            tickColor=INK,
            titleFontWeight="normal",
        ),
        legend=alt.LegendConfig(labelColor=INK, titleColor=INK, labelFontSize=12),
        mark=alt.MarkConfig(tooltip=True),
    )


def wrap_text(text: str, width: int) -> list[str]:
    """The text in lines of about `width` characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
