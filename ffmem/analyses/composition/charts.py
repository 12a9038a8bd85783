"""Figures 7 and 8 of the paper, and the kinds of cases where a memory agrees with its layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.composition.record import AgreeingCases, Composition
from ffmem.analyses.statistics import Interval
from ffmem.figures import style
from ffmem.figures.style import Row


def _beside_active(result: Composition) -> list[Row]:
    """The median share of a control's layer that is active."""
    return [{"layer": found.layer, "beside": found.active[2]} for found in result.activity]


def active_chart(result: Composition, beside: Sequence[Row] = ()) -> Any:
    """Figure 7: a box of active memories per layer, and how many make up 90 % of the output."""
    rows: list[Row] = [
        {
            "layer": found.layer,
            "memories": found.memories,
            **style.quantile_fields(found.active),
            "above_threshold_median": found.active_eps[2],
            "for_90_median": found.for_90[2],
            "participation_median": found.participation[2],
        }
        for found in result.activity
    ]
    every = style.base([*rows, *beside])
    data, x = style.own_rows(every), style.layer_axis()
    lines = (
        data.transform_fold(
            ["above_threshold_median", "for_90_median", "participation_median"],
            as_=["which", "share"],
        )
        .transform_calculate(
            series="{'above_threshold_median': 'above 1 % of the large ones', "
            "'for_90_median': 'make up 90 % of the output', "
            "'participation_median': 'participation ratio'}[datum.which]"
        )
        .mark_line(point=alt.OverlayMarkDef(size=18), strokeDash=[4, 2])
        .encode(
            x=x,
            y=alt.Y("share:Q"),
            color=style.series(
                "series",
                (
                    "above 1 % of the large ones",
                    "make up 90 % of the output",
                    "participation ratio",
                ),
                (style.GREY, style.ORANGE, style.GREEN),
            ),
        )
    )
    boxes = style.box(
        data, x, "share of the layer's memories", axis=alt.Axis(labelExpr="datum.label + '%'")
    )
    chart = style.with_size(alt.layer(boxes, *style.beside_band(every, beside), lines))
    active = "whose gate is on" if result.gated else "with a coefficient above zero"
    caption = (
        f"Memories {active} over {result.prefixes:,} validation prefixes "
        "(figure 7): median, quartiles, 5 to 95 %. Lines are medians."
        + style.beside_note(beside, "the median of all that are active")
    )
    return style.with_caption(chart, "Active memories per layer (Fig. 7)", caption)


SERIES = {  # by field of a layer
    "all": ("all memories", style.BLUE),
    "active": ("active memories only", style.ORANGE),
    "all_o": ("all, against the block’s output", style.GREEN),
    "random_values": ("random directions as values", style.GREY),
}


def _beside_zero_agreement(result: Composition) -> list[Row]:
    """A control's share of prefixes where no memory says what its layer says."""
    return [
        {"layer": found.layer, "beside": found.all.estimate, "n": found.all.n}
        for found in result.zero_agreement
    ]


def _zero_agreement_chart(result: Composition, beside: Sequence[Row] = ()) -> Any:
    """Figure 8: bars with their intervals, variants and control as lines."""
    rows: list[Row] = [
        {
            "layer": found.layer,
            "series": name,
            **share.fields("share"),
        }
        for found in result.zero_agreement
        for field, (name, _) in SERIES.items()
        for share in (getattr(found, field),)
    ]
    data = style.base([*rows, *beside], style.enough_cases())
    drawn = dict(SERIES.values())
    first, *others = drawn
    colour = style.series("series", list(drawn), list(drawn.values()))
    x, y = style.layer_axis(), style.percent("share", "prefixes with zero agreement", domain=[0, 1])
    main = data.transform_filter(alt.datum.series == first)
    bars = main.mark_bar(opacity=0.75).encode(x=x, y=y, color=colour)
    error = main.mark_rule(color=style.INK).encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    rest = data.transform_filter({"field": "series", "oneOf": others})
    lines = rest.mark_line(point=alt.OverlayMarkDef(size=18)).encode(x=x, y=y, color=colour)
    caption = (
        "Share of prefixes where no memory's top token is the top token of the layer's output y "
        "(figure 8), or of the block's output o. 95 % Wilson intervals. "
        f"{result.prefixes:,} validation prefixes."
        + style.beside_note(beside, "all memories")
        + style.few_cases_note(rows)
    )
    band = style.beside_band(data, beside)
    chart = style.with_size(alt.layer(bars, error, *band, lines))
    return style.with_caption(
        chart, "Prefixes where no memory has the layer's top token (Fig. 8)", caption
    )


CASES = ("where a memory agrees", "all cases")


def _measures(found: AgreeingCases) -> dict[str, tuple[Interval, Interval]]:
    """Shares of the cases where a memory agrees, and of all, by what the cases are."""
    return {
        "stop word": (found.stop_word, found.stop_word_base),
        "punctuation": (found.punctuation, found.punctuation_base),
        "prefix under 5 tokens": (found.short, found.short_base),
    }


def _beside_cases(result: Composition) -> list[Row]:
    """A control's shares of the cases where a memory agrees."""
    return [
        {
            "measure": measure,
            "series": style.BESIDE,
            "beside": pair[0].estimate,
            "n": pair[0].n,
        }
        for measure, pair in _measures(result.agreeing).items()
    ]


def _cases_chart(result: Composition, beside: Sequence[Row] = ()) -> Any:
    """The two percentages, beside their base rates."""
    rows: list[Row] = [
        {"measure": measure, "series": name, **share.fields("share")}
        for measure, pair in _measures(result.agreeing).items()
        for name, share in zip(CASES, pair, strict=True)
    ]
    every = style.base([*rows, *beside], style.enough_cases())
    data = style.own_rows(every)
    colour = style.series("series", CASES, (style.BLUE, style.GREY))
    y = alt.Y("measure:N", title=None, sort=None, axis=alt.Axis(labelLimit=200))
    offset = alt.YOffset("series:N", sort=[*CASES, style.BESIDE])
    x = alt.X("share:Q", title="share of the cases", axis=alt.Axis(format="~%", tickCount=5))
    bars = data.mark_bar().encode(y=y, yOffset=offset, x=x, color=colour)
    error = data.mark_rule(color=style.INK).encode(
        y=y, yOffset=offset, x=alt.X("low:Q"), x2=alt.X2("high:Q")
    )
    caption = (
        "Cases are pairs of prefix and layer; the token is the top token of y, stop words are our "
        "list of function words. Grey: the same shares over all cases, agreeing or not."
        + style.beside_note(beside, "where a memory agrees,", "Ticks")
        + style.few_cases_note(rows)
    )
    ticks = style.beside_ticks(every, beside, y=y, yOffset=offset)
    chart = style.with_size(alt.layer(bars, error, *ticks), height=160)
    return style.with_caption(
        chart, "Stop words and short prefixes where a memory agrees with its layer", caption
    )


FIGURES: tuple[Figure[Composition], ...] = (
    Figure(
        "composition-active",
        active_chart,
        read="The share of each layer's memories that is active for one prefix (in a gated layer: "
        "whose gate is on), and how many make up 90 % of the sum.",
        paper="10 to 50 % of the memories, fewest around layer 10 (figure 7).",
        beside=_beside_active,
    ),
    Figure(
        "composition-zero-agreement",
        _zero_agreement_chart,
        read="Share of prefixes where the layer's top token is not the top token of any active "
        "memory. Random directions in place of the values show what chance would give.",
        paper="At least about 68 % in every layer (figure 8).",
        beside=_beside_zero_agreement,
    ),
    Figure(
        "composition-cases",
        _cases_chart,
        read="In the cases where some memory does agree: how often the token is a stop word and "
        "the prefix short, compared with the same shares over all cases.",
        paper="60 % stop words, 43 % short prefixes; base rates are not given there.",
        beside=_beside_cases,
    ),
)
