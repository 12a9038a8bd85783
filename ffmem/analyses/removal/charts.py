"""Figure 3: the change of the coefficient by layer and by the token removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.removal.record import REMOVALS, Removal
from ffmem.figures import style


def _beside_removal(result: Removal) -> list[style.Row]:
    """What a control's keys lose with the last token."""
    return [
        {
            "layer": layer.layer,
            "beside": layer.last.estimate / 100,
            "triggers": layer.triggers,
        }
        for layer in result.layers
        if layer.last.n
    ]


def removal_chart(result: Removal, beside: Sequence[style.Row] = ()) -> Any:
    """One line for each removed token, with the interval over keys around it."""
    rows = [
        {
            "layer": layer.layer,
            "removed": f"{kind} token",
            "change": change.estimate / 100,
            "low": change.low / 100,
            "high": change.high / 100,
            "triggers": layer.triggers,
        }
        for layer in result.layers
        for kind in REMOVALS
        if (change := getattr(layer, kind)).n
    ]
    colour = style.series("removed", [f"{kind} token" for kind in REMOVALS])
    every = style.base([*rows, *beside], style.enough_cases("triggers", style.LEAST_MEAN))
    data = style.own_rows(every)
    axis = alt.Axis(format="~%")
    band = data.mark_area(opacity=0.18).encode(
        x=style.layer_axis(),
        y=alt.Y("low:Q", title="change of the coefficient", axis=axis),
        y2=alt.Y2("high:Q"),
        color=colour,
    )
    line = data.mark_line(point=True).encode(
        x=style.layer_axis(),
        y=alt.Y("change:Q"),
        color=colour,
        tooltip=style.tooltip("layer:O", "removed:N", "change:Q", "low:Q", "high:Q", "triggers:Q"),
    )
    title = "Change of the coefficient when a token is removed (Fig. 3)"
    text = _removal_caption(result) + style.beside_note(beside, "the last token")
    text += style.few_cases_note(rows, "triggers", style.LEAST_MEAN)
    chart = alt.layer(band, *style.beside_band(every, beside), line)
    return style.with_caption(style.with_size(chart), title, text)


def _removal_caption(result: Removal) -> str:
    """The caption of the removal chart: sample, and what was left out."""
    triggers = sum(layer.triggers for layer in result.layers)
    keys = sum(layer.keys for layer in result.layers)
    short = sum(layer.short for layer in result.layers)
    return (
        f"Mean change when one token of a trigger is removed (figure 3): {keys:,} keys, "
        f"{triggers:,} of their {result.top} strongest triggers, {short:,} of one token left out. "
        "Bands: 95 % over keys."
    )


FIGURES: tuple[Figure[Removal], ...] = (
    Figure(
        "removal",
        removal_chart,
        read="The lower a line, the more of the coefficient is lost with that token. A key that "
        "only looks at the last word loses all of it with the last token.",
        paper="The last token costs most, and less so in upper layers (figure 3).",
        beside=_beside_removal,
    ),
)
