"""Right memories that their layer overruled, layer by layer, beside chance."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.suppression.record import Suppression
from ffmem.figures import style
from ffmem.figures.style import Row


def suppression_chart(result: Suppression) -> Any:
    """Right memories that are overruled, layer by layer, beside chance."""
    names = ("own next token", "next token of another prefix")
    rows: list[Row] = [
        {
            "layer": found.layer,
            "series": name,
            **share.fields("share"),
            "fired": found.fired.estimate,
        }
        for found in result.layers
        for name, share in zip(names, (found.overruled, found.by_chance), strict=True)
    ]
    data, x = style.base(rows), style.layer_axis()
    colour = style.series("series", names, (style.BLUE, style.GREY))
    y = style.percent("share", "prefixes with an overruled right memory")
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    band = style.interval_band(data, x, colour)
    caption = (
        f"{result.prefixes:,} validation prefixes; bands: 95 % Wilson. Of the model's "
        f"{result.lost.n:,} wrong answers {100 * result.lost.estimate:.0f} % had a right memory in "
        f"some layer that overruled it ({100 * result.lost_by_chance.estimate:.0f} % by chance)."
    )
    chart = style.with_size(alt.layer(band, lines))
    heading = "Prefixes whose right memory the layer overrules"
    return style.with_caption(chart, heading, caption)


FIGURES: tuple[Figure[Suppression], ...] = (
    Figure(
        "suppression",
        suppression_chart,
        read="Share of prefixes where an active memory's value has the true next token on top and "
        "the layer says another. The grey line takes the next token of another prefix: memories "
        "that happen to promote a common token.",
        paper="Not in the paper, which names finding such right, suppressed patterns as a use.",
    ),
)
