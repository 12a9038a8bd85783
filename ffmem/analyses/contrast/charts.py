"""The memories of each layer that are specific to one corpus."""

from __future__ import annotations

from typing import Any

from ffmem.analyses.contrast.measure import Contrast
from ffmem.figures import style


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
    chance = "; ".join(
        f"in {one.deals} deals of the parts of all corpora at random, 95 % have at most "
        f"{one.bound:,} cells above the bar and {one.with_any} have any that would be called"
        for one in result.permutations
    )
    caption = (
        "Cells that fire more often on one corpus than on the others, false discoveries held to "
        f"{100 * result.level:.3g} %, of {result.cells:,}. Control: {chance}."
    )
    return style.with_caption(style.with_size(lines), "Memories specific to one corpus", caption)
