"""Each layer beside the same layer with a softmax over its keys."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.normalisation.record import Normalisation
from ffmem.figures import style
from ffmem.figures.style import Row

OWN, CONTROL = "with its own output", "with its output at another prefix"
SOFTMAX, ACTIVATION = "with a softmax", "as it is"


def _normalisation_chart(result: Normalisation) -> Any:
    """Three panels: how many memories carry the weight, cosine, and shared top tokens."""
    width, x = style.panel_width(3), style.layer_axis()
    counts: list[Row] = [
        {"layer": one.layer, "series": name, **style.quantile_fields(found), "of": one.memories}
        for one in result.layers
        for name, found in ((SOFTMAX, one.effective), (ACTIVATION, one.own_effective))
    ]
    colour = style.series("series", (SOFTMAX, ACTIVATION), (style.ORANGE, style.BLUE))
    data, scale = style.base(counts), alt.Scale(type="log")
    y = alt.Y("q50:Q", title="memories that carry the weight", scale=scale)
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("q25:Q", scale=scale), y2=alt.Y2("q75:Q"), color=colour
    )
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    panels = [style.with_size(alt.layer(band, lines), width=width)]
    for title, fields in (
        ("cosine", ("cosine", "shuffled_cosine")),
        ("prefixes with the same top token", ("same_top", "shuffled_same_top")),
    ):
        panels.append(_comparison(result, title, fields))
    caption = (
        "Every layer with a softmax over its keys instead of its activation function, at "
        f"{result.prefixes:,} validation prefixes. Left: the effective number of memories, median "
        "and quartiles. Middle and right: its output compared with the layer's own, 95 % "
        "intervals; grey: with the layer's output at another prefix."
    )
    if result.left_out:
        caption += f" Left out: {result.left_out} mixtures of experts."
    chart = alt.hconcat(*panels).resolve_scale(color="independent")
    return style.with_caption(chart, "Layers as neural memories (equation 2)", caption, 3)


def _comparison(result: Normalisation, title: str, fields: tuple[str, str]) -> Any:
    """One panel with intervals, beside its control."""
    rows: list[Row] = []
    for one in result.layers:
        for series, field in zip((OWN, CONTROL), fields, strict=True):
            found = getattr(one, field)
            numbers = {"value": found.estimate, "low": found.low, "high": found.high, "n": found.n}
            rows.append({"layer": one.layer, "series": series, **numbers})
    data, x = style.base(rows, style.enough_cases()), style.layer_axis()
    y = alt.Y("value:Q", title=title) if title == "cosine" else style.percent("value", title)
    colour = style.series("series", (OWN, CONTROL), (style.ORANGE, style.CONTROL))
    band = style.interval_band(data, x, colour)
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    return style.with_size(alt.layer(band, lines), width=style.panel_width(3))


FIGURES: tuple[Figure[Normalisation], ...] = (
    Figure(
        "normalisation",
        _normalisation_chart,
        read="The layer's activation function is replaced by a softmax over the same keys. If the "
        "normalisation were the only difference, the cosine would be 1 and the top token would "
        "stay: dividing coefficients by their sum changes a length, never a direction.",
        paper="Equations 1 and 2: the two have one form, and only the normalisation differs.",
        drawn_if=lambda result: bool(result.layers),
    ),
)
