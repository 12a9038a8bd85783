"""Figures 7 and 8 of the paper, and the kinds of cases where a memory agrees with its layer.

And right memories that their layer overruled, layer by layer, beside chance.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.composition import Composition, Suppression
from ffmem.figures import style
from ffmem.figures.style import FigureText, Row

TEXTS = (
    FigureText(
        "composition-active",
        "The share of each layer's memories that is active for one prefix (in a gated layer: whose "
        "gate is on), and how many make up 90 % of the sum.",
        "10 to 50 % of the memories, fewest around layer 10 (figure 7).",
        claims=("many-memories-are-active", "activity-dips"),
    ),
    FigureText(
        "composition-zero-agreement",
        "Share of prefixes where the layer's top token is not the top token of any active memory. "
        "Random directions in place of the values show what chance would give.",
        "At least about 68 % in every layer (figure 8).",
        claims=("layers-compose",),
    ),
    FigureText(
        "composition-cases",
        "In the cases where some memory does agree: how often the token is a stop word and "
        "the prefix short, compared with the same shares over all cases.",
        "60 % stop words, 43 % short prefixes; base rates are not given there.",
        claims=("agreement-is-on-stop-words", "agreement-is-on-short-prefixes"),
    ),
)
SUPPRESSION_TEXTS = (
    FigureText(
        "suppression",
        "Share of prefixes where an active memory's value has the true next token on top and the "
        "layer says another. The grey line takes the next token of another prefix: memories that "
        "happen to promote a common token.",
        "Not in the paper, which names finding such right, suppressed patterns as a use.",
    ),
)


def charts(result: Composition) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    return {
        "composition-active": active_chart(result),
        "composition-zero-agreement": zero_agreement_chart(result),
        "composition-cases": cases_chart(result),
    }


def active_chart(result: Composition) -> Any:
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
    data = style.base(rows)
    x = style.layer_axis()
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
    chart = style.with_size(alt.layer(boxes, lines))
    active = "whose gate is on" if result.gated else "with a coefficient above zero"
    caption = (
        f"Memories {active} over {result.prefixes:,} validation prefixes "
        "(figure 7): median, quartiles, 5 to 95 %. Lines are medians."
    )
    return style.with_caption(chart, "Active memories per layer (Fig. 7)", caption)


SERIES = {
    "all, against y": ("all", style.BLUE),
    "active, against y": ("active", style.ORANGE),
    "all, against o": ("all_o", style.GREEN),
    "active, against o": ("active_o", style.PURPLE),
    "scaled (m v), against y": ("scaled", style.INK),
    "random values, against y": ("random_values", style.GREY),
}


def zero_agreement_chart(result: Composition) -> Any:
    """Figure 8 with its variants; scaled memories are dashed, for they may be the active ones."""
    names, colours = list(SERIES), [colour for _, colour in SERIES.values()]
    rows: list[Row] = []
    for found in result.zero_agreement:
        shares = [getattr(found, field) for field, _ in SERIES.values()]
        rows += [
            {
                "layer": found.layer,
                "series": name,
                "share": share.estimate,
                "low": share.low,
                "high": share.high,
                "n": share.n,
            }
            for name, share in zip(names, shares, strict=True)
        ]
    data = style.base(rows, style.enough_cases())
    colour = style.series("series", names, colours)
    x, y = style.layer_axis(), style.percent("share", "prefixes with zero agreement", domain=[0, 1])
    main = data.transform_filter(alt.datum.series == names[0])
    bars = main.mark_bar(opacity=0.75).encode(x=x, y=y, color=colour)
    error = main.mark_rule(color=style.INK).encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    rest = data.transform_filter(alt.datum.series != names[0])
    dashed = alt.condition(alt.datum.series == names[4], alt.value([2, 4]), alt.value([1, 0]))
    lines = rest.mark_line(point=alt.OverlayMarkDef(size=18)).encode(
        x=x, y=y, color=colour, strokeDash=alt.StrokeDashValue(**dashed)
    )
    caption = (
        "Share of prefixes where no memory's top token is the top token of the layer's output y "
        "(figure 8), or of the block's output o. 95 % Wilson intervals. "
        f"{result.prefixes:,} validation prefixes." + style.few_cases_note(rows)
    )
    chart = style.with_size(alt.layer(bars, error, lines))
    return style.with_caption(
        chart, "Prefixes where no memory has the layer's top token (Fig. 8)", caption
    )


def cases_chart(result: Composition) -> Any:
    """The two percentages, beside their base rates."""
    names = ("where a memory agrees", "all cases")
    rows: list[Row] = []
    for found in result.agreeing:
        measures = {
            "stop word": (found.stop_word, found.stop_word_base),
            "punctuation": (found.punctuation, found.punctuation_base),
            "prefix under 5 tokens": (found.short, found.short_base),
        }
        rows += [
            {
                "target": found.target,
                "stopwords": found.stopwords,
                "measure": measure,
                "series": name,
                "share": share.estimate,
                "low": share.low,
                "high": share.high,
                "n": share.n,
            }
            for measure, pair in measures.items()
            for name, share in zip(names, pair, strict=True)
        ]
    which = ("y", "function_words")
    data = style.base(rows, style.enough_cases()).transform_filter(
        (alt.datum.target == which[0]) & (alt.datum.stopwords == which[1])
    )
    colour = style.series("series", names, (style.BLUE, style.GREY))
    y = alt.Y("measure:N", title=None, sort=None, axis=alt.Axis(labelLimit=200))
    offset = alt.YOffset("series:N", sort=list(names))
    x = alt.X("share:Q", title="share of the cases", axis=alt.Axis(format="~%", tickCount=5))
    bars = data.mark_bar().encode(y=y, yOffset=offset, x=x, color=colour)
    error = data.mark_rule(color=style.INK).encode(
        y=y, yOffset=offset, x=alt.X("low:Q"), x2=alt.X2("high:Q")
    )
    caption = (
        "Cases are pairs of prefix and layer; the token is the top token of y, stop words are our "
        "list of function words. Grey: the same shares over all cases, agreeing or not."
        + style.few_cases_note([row for row in rows if (row["target"], row["stopwords"]) == which])
    )
    chart = style.with_size(alt.layer(bars, error), height=160)
    return style.with_caption(
        chart, "Stop words and short prefixes where a memory agrees with its layer", caption
    )


def suppression_charts(result: Suppression) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    names = ("own next token", "next token of another prefix")
    rows: list[Row] = [
        {
            "layer": found.layer,
            "series": name,
            "share": share.estimate,
            "low": share.low,
            "high": share.high,
            "n": share.n,
            "fired": found.fired.estimate,
        }
        for found in result.layers
        for name, share in zip(names, (found.overruled, found.by_chance), strict=True)
    ]
    data, x = style.base(rows), style.layer_axis()
    colour = style.series("series", names, (style.BLUE, style.GREY))
    y = style.percent("share", "prefixes with an overruled right memory")
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    caption = (
        f"{result.prefixes:,} validation prefixes; bands: 95 % Wilson. Of the model's "
        f"{result.lost.n:,} wrong answers {100 * result.lost.estimate:.0f} % had a right memory in "
        f"some layer that overruled it ({100 * result.lost_by_chance.estimate:.0f} % by chance)."
    )
    chart = style.with_size(alt.layer(band, lines))
    heading = "Prefixes whose right memory the layer overrules"
    return {"suppression": style.with_caption(chart, heading, caption)}
