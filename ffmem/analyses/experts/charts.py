"""The experts of mixtures, layer by layer: loads, parts of the text, sums and agreement."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.experts.record import Experts
from ffmem.analyses.statistics import Interval
from ffmem.figures import style
from ffmem.figures.style import Row

NOT_IN_PAPER = "Not in the paper, whose model has no experts."


def load(result: Experts) -> Any:
    """The loads of all experts."""
    rows: list[Row] = [
        {
            "layer": use.layer,
            "expert": f"L{use.layer}.E{use.expert}",
            "share": use.load,
            "weight": use.mean_weight,
            "series": "an expert",
        }
        for use in result.experts
    ]
    rows += [
        {
            "layer": one.layer,
            "expert": "evenly",
            "share": one.per_place / one.experts,
            "weight": 0.0,
            "series": "evenly",
        }
        for one in result.layers
    ]
    marks = (
        style.base(rows)
        .mark_tick(thickness=2, opacity=0.7)
        .encode(
            x=style.layer_axis(),
            y=style.percent("share", "prefixes it is chosen for"),
            color=style.series("series", ("an expert", "evenly"), (style.BLUE, style.GREY)),
            tooltip=style.tooltip("expert:N", "share:Q", "weight:Q"),
        )
    )
    unused = sum(one.unused for one in result.layers)
    caption = (
        f"{len(result.experts):,} experts of {len(result.layers)} layers over {result.prefixes:,} "
        f"prefixes; {unused:,} never chosen. Effective numbers of experts: "
        + ", ".join(f"{one.effective:.1f} of {one.experts}" for one in result.layers[:6])
        + (" ..." if len(result.layers) > 6 else "")
        + "."
    )
    return style.with_caption(style.with_size(marks), "Load of each expert", caption)


def parts(result: Experts) -> Any:
    """Information between expert and part of the text."""
    names = ("by the text's parts", "sentences dealt at random")
    rows = [
        row
        for one in result.layers
        for row in (
            {"layer": one.layer, "series": names[0], "bits": one.information}
            | {
                "low": one.excess.low + one.shuffled.estimate,
                "high": one.excess.high + one.shuffled.estimate,
            },
            {"layer": one.layer, "series": names[1], "bits": one.shuffled.estimate}
            | {"low": one.shuffled.low, "high": one.shuffled.high},
        )
    ]
    chart = lines(rows, names, alt.Y("bits:Q", title="bits"), (style.BLUE, style.GREY))
    caption = (
        f"{result.parts} stretches of the text in its order, {result.sentences:,} sentences of it; "
        "bands: 95 % by resampling sentences, and 95 % of shuffles."
    )
    return style.with_caption(chart, "Information between expert and part of the text", caption)


def output(result: Experts) -> Any:
    """Shares of the layers' sums."""
    names = ("routed experts", "shared experts")
    rows = [
        _interval_row(one.layer, name, found)
        for one in result.layers
        for name, found in zip(names, (one.routed, one.shared), strict=True)
        if found is not None
    ]
    axis = style.percent("share", "of the layer's sum")
    chart = lines(rows, names, axis, (style.BLUE, style.ORANGE))
    caption = f"At {result.sentences:,} prefixes; bands: 95 % by resampling them."
    return style.with_caption(chart, "Output of routed and shared experts", caption)


def agreement(result: Experts) -> Any:
    """Agreement of values with triggers, by part."""
    names = ("routed experts", "shared experts", "next tokens shuffled")
    rows = [
        _interval_row(one.layer, name, found)
        for one in result.layers
        for name, found in zip(
            names, (one.agreement, one.shared_agreement, one.shuffled_agreement), strict=True
        )
        if found is not None
    ]
    axis = style.percent("share", "memories that agree")
    chart = lines(rows, names, axis, (style.BLUE, style.ORANGE, style.GREY))
    caption = "Memories that something fires; bands: 95 % Wilson, and 95 % of the shuffles."
    return style.with_caption(chart, "Agreement of routed and shared experts' values", caption)


def _interval_row(layer: int, series: str, found: Interval) -> Row:
    """One point of a line with its band."""
    return {
        "layer": layer,
        "series": series,
        **found.fields("share"),
    }


def lines(rows: list[Row], names: tuple[str, ...], y: alt.Y, colours: tuple[str, ...]) -> Any:
    """A line per series with its band."""
    data, x = style.base(rows), style.layer_axis()
    shown = tuple(name for name in names if any(row["series"] == name for row in rows))
    colour = style.series("series", shown, [colours[names.index(name)] for name in shown])
    band = style.interval_band(data, x, colour)
    line = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    return style.with_size(alt.layer(band, line))


FIGURES: tuple[Figure[Experts], ...] = (
    Figure(
        "experts-load",
        load,
        read="Share of the scanned prefixes that the router chose each expert for; one mark per "
        "expert. The grey mark is where all would lie if every expert were chosen equally often.",
        paper=NOT_IN_PAPER,
    ),
    Figure(
        "experts-parts",
        parts,
        read="Mutual information, in bits, between the chosen expert and the part of the text. "
        "Grey: the same with sentences assigned to the parts at random, which is above zero "
        "because the words of a sentence determine its experts.",
        paper=NOT_IN_PAPER,
    ),
    Figure(
        "experts-output",
        output,
        read="How much of a layer's output the routed and the shared experts add: the projection "
        "of each on the output, as a share. One above 100 % and the other below 0 % means that "
        "they work against each other.",
        paper=NOT_IN_PAPER,
    ),
    Figure(
        "experts-agreement",
        agreement,
        read="Share of memories whose value has the token after their strongest trigger on top, by "
        "the experts they belong to; grey is that of routed memories with next tokens shuffled.",
        paper="Figure 4 has it for the layers of a dense model.",
    ),
)
