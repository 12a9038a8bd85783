"""Figures 4, 5 and 6 of the paper, and the predictive values beside random ones.

And the agreement under several ways to read a value, each beside its chance level.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.lenses import Lenses
from ffmem.analyses.values import Bin, Values
from ffmem.figures import style
from ffmem.figures.style import FigureText, Row

TEXTS = (
    FigureText(
        "values-agreement",
        "A bar that ends above its grey tick means more than chance: the tick gives every key "
        "another key's value, so common tokens are accounted for.",
        "About 0 in layers 1 to 10, then rising to 3.5 %; chance 0.0004 % (figure 4).",
        claims=("upper-values-agree",),
    ),
    FigureText(
        "values-ranks",
        "Lower is better: 0 means that the next token is the value's first choice. Boxes "
        "below the grey band are better than another key's value.",
        "The rank improves through the layers (figure 5).",
        claims=("ranks-improve",),
    ),
    FigureText(
        "values-probability",
        "Bars that rise to the right mean that values with a higher top probability agree more "
        "often. The last bins on the left have few values: see the counts above them.",
        "Agreement rises with the maximal probability (figure 6).",
        claims=("sure-values-are-right",),
    ),
    FigureText(
        "values-mass",
        "How much probability a value gives to all tokens that follow its key's triggers, and in "
        "grey what it gives to those of another key. Above the grey line a value is about what "
        "follows its pattern, not only about one token. The softmax of a value is not calibrated: "
        "compare the two lines, not the heights.",
        "A conjecture of the paper: values are distributions of what follows the pattern. It "
        "tests only the next token of the top trigger.",
    ),
    FigureText(
        "values-predictive",
        "The values with the highest top-token probability, compared with random ones, and with "
        "random ones of the same layers.",
        "Of the 100 values with the highest top-token probability 97 are in layers 11 to 16; 46 "
        "have at least one agreeing trigger among 50.",
        claims=("predictive-values-are-high-up", "predictive-values-predict"),
    ),
)
LENSES_TEXTS = (
    FigureText(
        "lenses-top-10",
        "The same question under several readings of a value, each with its own chance "
        "level. ‘Measured’ forces the memory on and reads what the model then predicts.",
        "Not in the paper, which asks whether lower layers live in another space.",
    ),
    FigureText(
        "lenses-rank",
        "As above, by rank: lower is better.",
        "Not in the paper.",
    ),
    FigureText(
        "lenses-learned",
        "How often a layer's output already has the model's own top token: read as it is, through "
        "an affine map to the last layer that was fitted on other places of the text (a tuned "
        "lens), and through a map fitted on shuffled pairs. Blue above grey in the lower layers "
        "means that they encode the token in another basis.",
        "Not in the paper, which asks whether lower layers live in another space.",
    ),
)


def charts(result: Values) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    return {
        "values-agreement": agreement_chart(result),
        "values-ranks": ranks_chart(result),
        "values-probability": probability_chart(result),
        **({"values-mass": mass_chart(result)} if result.mass else {}),
        "values-predictive": predictive_chart(result),
    }


AGREEMENT = ("next token", "keys shuffled", "random token of the text", "released script's target")


def agreement_rows(result: Values) -> list[Row]:
    """One row per layer, group of cells and series."""
    rows: list[Row] = []
    for found in result.agreement:
        place = {"layer": found.layer, "cells": found.cells}
        for name, share in zip(
            AGREEMENT, (found.all, found.shuffled, None, found.released), strict=True
        ):
            numbers = (
                {"share": found.unigram}
                if share is None
                else {"share": share.estimate, "low": share.low, "high": share.high, "n": share.n}
            )
            rows.append({**place, "series": name, **numbers})
    return rows


def agreement_chart(result: Values) -> Any:
    """Figure 4: bars with their intervals, the control as ticks, other targets as lines."""
    rows = agreement_rows(result)
    groups = sorted({row["cells"] for row in rows})
    data = style.base(rows, style.enough_cases())
    main = alt.datum.series == AGREEMENT[0]
    y = style.percent("share", "values that predict the next token")
    colour = style.series("series", AGREEMENT, (style.BLUE, style.INK, style.GREEN, style.ORANGE))
    bars = (
        data.transform_filter(main)
        .mark_bar(opacity=0.75)
        .encode(x=style.layer_axis(), y=y, color=colour)
    )
    error = (
        data.transform_filter(main)
        .mark_rule(color=style.INK)
        .encode(x=style.layer_axis(), y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    )
    lines = (
        data.transform_filter(
            (alt.datum.series != AGREEMENT[0]) & (alt.datum.series != AGREEMENT[1])
        )
        .mark_line(strokeWidth=1.5)
        .encode(x=style.layer_axis(), y=y, color=colour)
    )
    control = (
        data.transform_filter(alt.datum.series == AGREEMENT[1])
        .mark_tick(thickness=4)
        .encode(x=style.layer_axis(), y=y, color=colour)
    )
    cells = result.agreement[0].all.n
    caption = (
        f"Share of {cells:,} cells per layer whose value's top token is the token after the key's "
        f"strongest trigger (figure 4), 95 % Wilson intervals. A random token of the vocabulary "
        f"agrees in {100 / result.vocabulary:.4f} %." + style.few_cases_note(rows)
    )
    chart = style.by_group(alt.layer(bars, error, lines, control), "cells", groups)
    return style.with_caption(
        chart, "Agreement of value and next token (Fig. 4)", caption, len(groups)
    )


def ranks_chart(result: Values) -> Any:
    """Figure 5: a box per layer, the shuffled control's quartiles beside it."""
    rows: list[Row] = []
    for found in result.ranks:
        place = {"layer": found.layer, "cells": found.cells, "n": found.n}
        under = dict(zip(("under_10", "under_100", "under_1000"), found.under, strict=True))
        own = style.quantile_fields(found.quantiles)
        rows.append({**place, "series": "own trigger", **own, **under, "mrr": found.mrr})
        other = style.quantile_fields(found.shuffled_quantiles)
        rows.append({**place, "series": "keys shuffled", **other, "mrr": found.shuffled_mrr})
    groups = sorted({row["cells"] for row in rows})
    data = style.base(rows, style.enough_cases())
    x = style.layer_axis()
    own = style.box(
        data.transform_filter(alt.datum.series == "own trigger"), x, "rank of the next token"
    )
    chance = data.transform_filter(alt.datum.series == "keys shuffled")
    band = chance.mark_area(color=style.CONTROL, opacity=0.2).encode(
        x=x, y=alt.Y("q25:Q"), y2=alt.Y2("q75:Q")
    )
    median = chance.mark_line(color=style.CONTROL, strokeDash=[4, 3]).encode(x=x, y=alt.Y("q50:Q"))
    caption = (
        f"Rank of the strongest trigger's next token under the value, 0 the best of "
        f"{result.vocabulary:,} (figure 5): median, quartiles, 5 to 95 %. Grey: another key's next "
        "token, median and quartiles." + style.few_cases_note(rows)
    )
    chart = style.by_group(alt.layer(band, median, own), "cells", groups)
    return style.with_caption(
        chart, "Rank of the next token under the value (Fig. 5)", caption, len(groups)
    )


def mass_chart(result: Values) -> Any:
    """Probability that values give to the next tokens of all triggers, own and another key's."""
    names = ("own triggers", "keys shuffled")
    rows: list[Row] = [
        {
            "layer": found.layer,
            "cells": found.cells,
            "series": name,
            "share": mass.estimate,
            "low": mass.low,
            "high": mass.high,
            "n": mass.n,
            "keys_with_more": found.greater.estimate,
        }
        for found in result.mass
        for name, mass in zip(names, (found.own, found.shuffled), strict=True)
    ]
    groups = sorted({row["cells"] for row in rows})
    data, x = style.base(rows), style.layer_axis()
    colour = style.series("series", names, (style.BLUE, style.GREY))
    y = style.percent("share", "probability of the next tokens")
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    more = [found.greater for found in result.mass if found.cells in ("", "both")]
    low, high = (choose(one.estimate for one in more) for choose in (min, max))
    caption = (
        "Mean probability under the value of the tokens that follow all stored triggers of its "
        f"key, each token once; bands: 95 % bootstrap over keys. The own tokens get more than "
        f"another key's for {100 * low:.0f} to {100 * high:.0f} % of the keys of a layer (50 % by "
        "chance)."
    )
    chart = style.by_group(alt.layer(band, lines), "cells", groups)
    return style.with_caption(
        chart, "Probability of all next tokens under the value", caption, len(groups)
    )


def _bin_rows(kind: str, bins: tuple[Bin, ...]) -> list[Row]:
    return [
        {
            "kind": kind,
            "bin": number,
            "from": found.low,
            "to": found.high,
            "share": found.agreement.estimate,
            "low": found.agreement.low,
            "high": found.agreement.high,
            "n": found.agreement.n,
            "shuffled": found.shuffled.estimate,
        }
        for number, found in enumerate(bins, 1)
    ]


def probability_chart(result: Values) -> Any:
    """Figure 6 twice: equally wide bins, and bins of equally many cells."""
    rows = _bin_rows("equal width", result.equal_width)
    rows += _bin_rows("quantiles", result.quantile_bins)
    data = style.base(rows)
    wide = data.transform_filter(
        (alt.datum.kind == "equal width") & (alt.datum.n >= style.LEAST_SHARE)
    )
    axis = alt.Axis(format=".3~%", labelAngle=0, tickCount=5)
    edges = alt.X("from:Q", title="maximal probability", axis=axis, scale=alt.Scale(zero=False))
    y = style.percent("share", "agreement", domain=[0, 1])
    bars = wide.mark_bar(color=style.BLUE, opacity=0.75).encode(
        x=edges,
        x2=alt.X2("to:Q"),
        y=y,
        y2=alt.Y2Datum(0),
        tooltip=style.tooltip("from:Q", "to:Q", "share:Q", "n:Q"),
    )
    middle = wide.transform_calculate(middle="(datum.from + datum.to) / 2")
    error = middle.mark_rule(color=style.INK).encode(
        x=alt.X("middle:Q"), y=alt.Y("low:Q"), y2=alt.Y2("high:Q")
    )
    counts = middle.mark_text(dy=-8, color=style.INK, fontSize=10).encode(
        x=alt.X("middle:Q"), y=alt.Y("high:Q"), text=alt.Text("n:Q", format=",")
    )
    equal = style.with_size(alt.layer(bars, error, counts), width=style.panel_width(2))
    many = data.transform_filter(
        (alt.datum.kind == "quantiles") & (alt.datum.n >= style.LEAST_SHARE)
    )
    numbers = alt.Axis(labelAngle=0, labelOverlap="greedy")
    place = alt.X("bin:O", title="twentieth by maximal probability", axis=numbers)
    low = style.percent("share", "agreement")
    parts = (
        many.mark_bar(color=style.BLUE, opacity=0.75).encode(x=place, y=low),
        many.mark_rule(color=style.INK).encode(x=place, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        many.mark_tick(color=style.INK, thickness=4).encode(x=place, y=alt.Y("shuffled:Q")),
    )
    chart = alt.hconcat(equal, style.with_size(alt.layer(*parts), width=style.panel_width(2)))
    caption = (
        "Agreement of all layers' cells by the probability of the value's top token (figure 6). "
        "Left: ten bins of equal width, cells in each written above. Right: twenty bins of equally "
        "many cells. Rules: 95 % Wilson; grey ticks: keys shuffled. Bins of fewer than "
        f"{style.LEAST_SHARE} cells are not drawn."
    )
    return style.with_caption(
        chart, "Agreement by the value's top probability (Fig. 6)", caption, 2
    )


def predictive_chart(result: Values) -> Any:
    """The values of highest probability beside random ones: layers, agreement, precision."""
    found = result.predictive
    rows: list[Row] = []
    for group in (found.largest, found.random_same_layers, found.random):
        measures = {
            f"in layers from {found.first_upper_layer}": group.upper / max(group.n, 1),
            "with an agreeing trigger": group.agreeing / max(group.n, 1),
            "mean precision of the triggers": group.precision.estimate,
        }
        rows += [
            {"values": group.name, "measure": name, "share": share, "n": group.n}
            for name, share in measures.items()
        ]
    names = [group.name for group in (found.largest, found.random_same_layers, found.random)]
    measure = alt.Y("measure:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    data = style.base(rows)
    whole = alt.Scale(domain=[0, 1])
    axis = alt.Axis(format="~%", tickCount=5)
    share = alt.X("share:Q", title="share of the values", axis=axis, scale=whole)
    colour = style.series("values", names, (style.BLUE, style.GREEN, style.GREY))
    offset = alt.YOffset("values:N", sort=names)
    bars = data.mark_bar().encode(y=measure, yOffset=offset, x=share, color=colour)
    text = data.mark_text(align="left", dx=4, color=style.INK).encode(
        y=measure, yOffset=offset, x=share, text=alt.Text("share:Q", format=".1%")
    )
    caption = (
        f"The {found.largest.n} values with the largest maximal probability of all "
        f"{result.counts['cells']:,} cells, and as many random ones."
    )
    chart = style.with_size(alt.layer(bars, text), height=200)
    title = f"The {found.largest.n} values with the highest top-token probability"
    return style.with_caption(chart, title, caption)


def lenses_charts(result: Lenses) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    found = {"lenses-top-10": top_10_chart(result), "lenses-rank": rank_chart(result)}
    return found | ({"lenses-learned": learned_lens_chart(result)} if result.fits else {})


def learned_lens_chart(result: Lenses) -> Any:
    """Shares of held-out places with the model's own token: as it is, learned, shuffled."""
    names = {"learned": "learned map", "identity": "as it is", "shuffled": "map of shuffled pairs"}
    rows: list[Row] = []
    for found in result.fits:
        for field, series in names.items():
            share = getattr(found, field)
            numbers = {"share": share.estimate, "low": share.low, "high": share.high, "n": share.n}
            rows.append({"layer": found.layer, "series": series, **numbers})
    colours = (style.BLUE, style.ORANGE, style.GREY)
    colour = style.series("series", tuple(names.values()), colours)
    data, x = style.base(rows), style.layer_axis()
    y = style.percent("share", "places with the model's top token")
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    first = result.fits[0]
    caption = (
        f"Each layer's output at {first.learned.n:,} held-out places of the scanned text, read "
        f"through the head; maps fitted on {first.fitted_on:,} other places. Bands: 95 % Wilson."
    )
    chart = style.with_size(alt.layer(band, lines))
    return style.with_caption(chart, "Agreement with the model under a learned lens", caption)


def lens_rows(result: Lenses) -> list[Row]:
    """One row per layer and lens, and one for its chance level."""
    rows: list[Row] = []
    for found in result.rows:
        place = {"layer": found.layer, "lens": found.lens, "n": found.agreement.n}
        for series, agreement, top_10, rank in (
            ("own trigger", found.agreement, found.top_10, found.median_rank),
            ("keys shuffled", found.shuffled, found.shuffled_top_10, found.shuffled_median_rank),
        ):
            rows.append(
                {
                    **place,
                    "series": series,
                    "agreement": agreement.estimate,
                    "top_10": top_10.estimate,
                    "low": top_10.low,
                    "high": top_10.high,
                    "median_rank": rank,
                }
            )
    return rows


def _panels(result: Lenses, field: str, title: str, band: bool) -> Any:
    data, lenses = style.base(lens_rows(result), style.enough_cases()), lenses_with_cases(result)
    names = ("own trigger", "keys shuffled")
    colour = style.series("series", names, (style.BLUE, style.GREY))
    x = style.layer_axis()
    lines = data.mark_line(point=True).encode(x=x, y=style.percent(field, title), color=colour)
    if not band:
        return style.by_group(lines, "lens", lenses)
    area = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    return style.by_group(alt.layer(area, lines), "lens", lenses)


def lenses_with_cases(result: Lenses) -> list[str]:
    """The lenses of which some layer has enough cases to be drawn."""
    cases = {row.lens: row.agreement.n for row in sorted(result.rows, key=lambda r: r.agreement.n)}
    return [name for name in result.lenses if cases.get(name, 0) >= style.LEAST_SHARE]


def lenses_note(result: Lenses) -> str:
    """For a caption: the lenses that are not drawn, and why."""
    few = [name for name in result.lenses if name not in lenses_with_cases(result)]
    least = style.LEAST_SHARE
    return f" Not drawn, with fewer than {least} cases per layer: {', '.join(few)}." if few else ""


def top_10_chart(result: Lenses) -> Any:
    """Share of cells whose next token is among the value's ten best."""
    chart = _panels(result, "top_10", "next token among the ten best", band=True)
    caption = (
        "The strongest trigger's next token under each lens, 95 % Wilson bands; grey: another "
        f"key's. Measured: {result.measured_memories} memories per layer forced on at "
        f"{result.measured_prefixes} random prefixes, change of the model's own scores."
        + lenses_note(result)
    )
    return style.with_caption(chart, "Agreement under other projections", caption, 3)


def rank_chart(result: Lenses) -> Any:
    """Median rank as a share of the vocabulary."""
    chart = _panels(result, "median_rank", "median rank, share of the vocabulary", band=False)
    caption = (
        "Median rank of the next token under each lens; grey: another key's next token."
        + lenses_note(result)
    )
    return style.with_caption(chart, "Rank of the next token under other projections", caption, 3)
