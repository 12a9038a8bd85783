"""Correlation of predicted with true effects, layer by layer and method by method."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.attribution.record import Attribution
from ffmem.figures import style
from ffmem.figures.style import Row

NAMES = {
    "direct": "direct",
    "gradient": "gradient",
    "linear": "linear",
    "random": "control: the gradient with random signs",
}
COLOURS = (style.ORANGE, style.BLUE, style.GREEN, style.CONTROL)
PANELS = ("the model", "its weights in random order")


def _attribution_chart(result: Attribution) -> Any:
    """One line with its band for each method, in the model and in its control."""
    rows: list[Row] = [
        {
            "layer": layer,
            "weights": panel,
            "method": NAMES[found.method],
            **one.fields("correlation", "prompts"),
        }
        for panel, methods in zip(PANELS, (result.methods, result.permuted), strict=True)
        for found in methods
        for layer, one in zip(result.layers, found.by_layer, strict=True)
        if one.n
    ]
    data = style.base(rows, style.enough_cases("prompts", style.LEAST_MEAN))
    colour = style.series("method", tuple(NAMES.values()), COLOURS)
    x, y = style.layer_axis(), alt.Y("correlation:Q", title="correlation with true effects")
    line = data.mark_line(point=alt.OverlayMarkDef(size=20)).encode(x=x, y=y, color=colour)
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"), color=colour
    )
    caption = (
        f"{result.drawn} random pairs of memory and place in each layer of {result.prompts} "
        "prompts, the more often the more they add, silenced one by one. Bands: 95 %, whole "
        "prompts resampled." + style.few_cases_note(rows, "prompts", style.LEAST_MEAN)
    )
    chart = style.by_group(alt.layer(band, line), "weights", PANELS)
    heading = "Do predicted effects agree with true silencing?"
    return style.with_caption(chart, heading, caption, panels=len(PANELS))


FIGURES: tuple[Figure[Attribution], ...] = (
    Figure(
        "attribution",
        _attribution_chart,
        read="Correlation of predicted effects of single memories with those of silencing them. 1 "
        "is a prediction that can be believed, 0 one that says nothing. Direct: coefficient x "
        "value, along the token. Gradient: coefficient x gradient. Linear: with norms, attention "
        "patterns and activations frozen.",
        paper="Not in the paper.",
    ),
)
