"""How well each layer's memories tell one text from another.

Scanned from unseen text, beside scanned from scanned; and cells that are specific to a corpus.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.contrast import Contrast
from ffmem.analyses.membership import Membership
from ffmem.figures import style
from ffmem.figures.style import FigureText, Row

TEXTS = (
    FigureText(
        "membership",
        "The chance that a scanned prefix comes nearer to the memories' strongest triggers than an "
        "unseen one of the same length. The grey line compares scanned prefixes with each other, "
        "and must be at 50 %. Where the blue line is above it, the model has memorised the text, "
        "or the text is of another kind: the same number without training shows which.",
        "Not in the paper, which names the privacy of training text as a use.",
    ),
)


def charts(result: Membership) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    other = "unseen" if result.unseen else "other scanned"
    names = (f"scanned against {other} text", "scanned against scanned text")
    rows: list[Row] = [
        {
            "layer": found.layer,
            "series": name,
            "share": auc.estimate,
            "low": auc.low,
            "high": auc.high,
            "n": auc.n,
        }
        for found in result.layers
        for name, auc in zip(names, (found.auc, found.split), strict=True)
    ]
    data, x = style.base(rows), style.layer_axis()
    colour = style.series("series", names, (style.BLUE, style.GREY))
    y = style.percent("share", "scanned prefix scores higher", domain=[0, 1])
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    caption = (
        f"{result.pairs:,} prefixes of each text, of equal lengths. All layers together: "
        f"{_percent(result.auc)} against {other} text, {_percent(result.split)} against scanned "
        "text (50 % by chance). Bands: 95 % bootstrap over prefixes."
    )
    chart = style.with_size(alt.layer(band, lines))
    heading = "Scanned against unseen text by the strongest triggers"
    return {"membership": style.with_caption(chart, heading, caption)}


def _percent(auc: Any) -> str:
    return f"{100 * auc.estimate:.0f} % ({100 * auc.low:.0f} to {100 * auc.high:.0f})"


def contrast_chart(result: Contrast) -> Any:
    """The share of each layer's cells that one corpus fires and the others do not."""
    rows = [
        {"layer": layer.layer, "corpus": name, "share": count / layer.cells, "cells": count}
        for layer in result.layers
        for name, count in zip(result.corpora, layer.specific, strict=True)
    ]
    lines = (
        style.base(rows)
        .mark_line(point=True)
        .encode(
            x=style.layer_axis(),
            y=style.percent("share", "specific cells"),
            color=style.series("corpus", result.corpora),
            tooltip=style.tooltip("layer:O", "corpus:N", "cells:Q", "share:Q"),
        )
    )
    halves = ", ".join(
        f"{name} {count:,}" for name, count in zip(result.corpora, result.halves, strict=True)
    )
    caption = (
        "Cells that fire more often on one corpus than on the others, at a false discovery rate of "
        f"{100 * result.level:.3g} %, of {result.cells:,}. Control, halves of one corpus: {halves}."
    )
    return style.with_caption(style.with_size(lines), "Memories specific to one corpus", caption)
