"""Figures 4, 5 and 6 of the paper, and the predictive values beside random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.values.record import Bin, Predictive, ValueGroup, Values
from ffmem.figures import style
from ffmem.figures.style import Row

AGREEMENT = (
    "next token",
    "keys shuffled",
    "random token of the text",
    "the token just read (released script)",
)
CHANCE = "chance (another key, a random token of the text)"


def _agreement_rows(result: Values) -> list[Row]:
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


def _beside_agreement(result: Values) -> list[Row]:
    """How often a control's values agree."""
    return [
        {
            "layer": found.layer,
            "cells": found.cells,
            "beside": found.all.estimate,
            "n": found.all.n,
        }
        for found in result.agreement
    ]


def _agreement_chart(result: Values, beside: Sequence[Row] = ()) -> Any:
    """Figure 4: bars with their intervals, chance as a band, the released target as a line."""
    rows = _agreement_rows(result)
    groups = sorted({row["cells"] for row in rows})
    data = style.base([*rows, *beside], style.enough_cases())
    main, *chance, released = AGREEMENT
    y = style.percent("share", "values that predict the next token")
    names = (main, CHANCE, released)
    colour = style.series("series", names, (style.BLUE, style.CONTROL, style.ORANGE))
    bars = (
        data.transform_filter(alt.datum.series == main)
        .mark_bar(opacity=0.75)
        .encode(x=style.layer_axis(), y=y, color=colour)
    )
    error = (
        data.transform_filter(alt.datum.series == main)
        .mark_rule(color=style.INK)
        .encode(x=style.layer_axis(), y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    )
    line = (
        data.transform_filter(alt.datum.series == released)
        .mark_line(strokeWidth=1.5)
        .encode(x=style.layer_axis(), y=y, color=colour)
    )
    control = style.band_of(data, "share", chance, CHANCE, by=("cells",)).encode(color=colour)
    cells = result.agreement[0].all.n
    caption = (
        f"Share of {cells:,} cells per layer whose value's top token is the token after the key's "
        f"strongest trigger (figure 4), 95 % Wilson intervals. A random token of the vocabulary "
        f"agrees in {100 / result.vocabulary:.4f} %."
        + style.beside_note(beside, "the next token")
        + style.few_cases_note(rows)
    )
    band = style.beside_band(data, beside, ("layer", "cells"))
    chart = style.by_group(alt.layer(bars, error, control, *band, line), "cells", groups)
    return style.with_caption(
        chart, "Agreement of value and next token (Fig. 4)", caption, len(groups)
    )


def _beside_ranks(result: Values) -> list[Row]:
    """The median rank of the next token under a control's values."""
    return [
        {"layer": found.layer, "cells": found.cells, "n": found.n, "beside": found.quantiles[2]}
        for found in result.ranks
    ]


def _ranks_chart(result: Values, beside: Sequence[Row] = ()) -> Any:
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
    data = style.base([*rows, *beside], style.enough_cases())
    x = style.layer_axis()
    own = style.box(
        data.transform_filter(alt.datum.series == "own trigger"), x, "rank of the next token"
    )
    chance = data.transform_filter(alt.datum.series == "keys shuffled")
    band = chance.mark_area(color=style.CONTROL, opacity=0.2).encode(
        x=x, y=alt.Y("q25:Q"), y2=alt.Y2("q75:Q")
    )
    median = chance.mark_line(color=style.CONTROL).encode(x=x, y=alt.Y("q50:Q"))
    caption = (
        f"Rank of the strongest trigger's next token under the value, 0 the best of "
        f"{result.vocabulary:,} (figure 5): median, quartiles, 5 to 95 %. Grey: another key's next "
        "token, median and quartiles."
        + style.beside_note(beside, "the median")
        + style.few_cases_note(rows)
    )
    controls = style.beside_band(data, beside, ("layer", "cells"))
    chart = style.by_group(alt.layer(band, median, own, *controls), "cells", groups)
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
            **mass.fields("share"),
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
    band = style.interval_band(data, x, colour)
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
            **found.agreement.fields("share"),
            "shuffled": found.shuffled.estimate,
        }
        for number, found in enumerate(bins, 1)
    ]


def _beside_bins(result: Values) -> list[Row]:
    """How often a control's values agree, by twentieth."""
    return [
        {"kind": "quantiles", "bin": number, "beside": found.agreement.estimate}
        | {"n": found.agreement.n}
        for number, found in enumerate(result.quantile_bins, 1)
    ]


def probability_chart(result: Values, beside: Sequence[Row] = ()) -> Any:
    """Figure 6 twice: equally wide bins, and bins of equally many cells."""
    rows = _bin_rows("equal width", result.equal_width)
    rows += _bin_rows("quantiles", result.quantile_bins)
    every = style.base([*rows, *beside])
    data = style.own_rows(every)
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
        *style.beside_band(every, beside, ("bin",), place),
    )
    chart = alt.hconcat(equal, style.with_size(alt.layer(*parts), width=style.panel_width(2)))
    caption = (
        "Agreement of all layers' cells by the probability of the value's top token (figure 6). "
        "Left: ten bins of equal width, cells in each written above. Right: twenty bins of equally "
        "many cells. Rules: 95 % Wilson; grey ticks: keys shuffled. Bins of fewer than "
        f"{style.LEAST_SHARE} cells are not drawn." + style.beside_note(beside, "agreement")
    )
    return style.with_caption(
        chart, "Agreement by the value's top probability (Fig. 6)", caption, 2
    )


def _predictive_measures(found: Predictive, group: ValueGroup) -> dict[str, float]:
    """What the chart shows of one group of values."""
    return {
        f"in layers from {found.first_upper_layer}": group.upper / max(group.n, 1),
        "with an agreeing trigger": group.agreeing / max(group.n, 1),
        "mean precision of the triggers": group.precision.estimate,
    }


def _beside_predictive(result: Values) -> list[Row]:
    """The same of the values of highest probability of a control."""
    found = result.predictive
    return [
        {"values": style.BESIDE, "measure": name, "beside": share}
        for name, share in _predictive_measures(found, found.largest).items()
    ]


def _predictive_chart(result: Values, beside: Sequence[Row] = ()) -> Any:
    """The values of highest probability beside random ones: layers, agreement, precision."""
    found = result.predictive
    rows: list[Row] = []
    for group in (found.largest, found.random_same_layers, found.random):
        rows += [
            {"values": group.name, "measure": name, "share": share, "n": group.n}
            for name, share in _predictive_measures(found, group).items()
        ]
    names = [group.name for group in (found.largest, found.random_same_layers, found.random)]
    measure = alt.Y("measure:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    every = style.base([*rows, *beside])
    data = style.own_rows(every)
    whole = alt.Scale(domain=[0, 1])
    axis = alt.Axis(format="~%", tickCount=5)
    share = alt.X("share:Q", title="share of the values", axis=axis, scale=whole)
    colour = style.series("values", names, (style.BLUE, style.GREEN, style.GREY))
    offset = alt.YOffset("values:N", sort=[*names, style.BESIDE])
    bars = data.mark_bar().encode(y=measure, yOffset=offset, x=share, color=colour)
    text = data.mark_text(align="left", dx=4, color=style.INK).encode(
        y=measure, yOffset=offset, x=share, text=alt.Text("share:Q", format=".1%")
    )
    caption = (
        f"The {found.largest.n} values with the largest maximal probability of all "
        f"{result.counts['cells']:,} cells, and as many random ones."
        + style.beside_note(beside, "the values of highest probability", "Ticks")
    )
    ticks = style.beside_ticks(every, beside, y=measure, yOffset=offset)
    chart = style.with_size(alt.layer(bars, text, *ticks), height=200)
    title = f"The {found.largest.n} values with the highest top-token probability"
    return style.with_caption(chart, title, caption)


FIGURES: tuple[Figure[Values], ...] = (
    Figure(
        "values-agreement",
        _agreement_chart,
        read="A bar that ends above the grey band means more than chance. The band gives every key "
        "another key's value, or a random token of the text, so common tokens are accounted for.",
        paper="About 0 in layers 1 to 10, then rising to 3.5 %; chance 0.0004 % (figure 4).",
        beside=_beside_agreement,
    ),
    Figure(
        "values-ranks",
        _ranks_chart,
        read="Lower is better: 0 means that the next token is the value's first choice. Boxes "
        "below the grey band are better than another key's value.",
        paper="The rank improves through the layers (figure 5).",
        beside=_beside_ranks,
    ),
    Figure(
        "values-probability",
        probability_chart,
        read="Bars that rise to the right mean that values with a higher top probability agree "
        "more often. The last bins on the left have few values: see the counts above them.",
        paper="Agreement rises with the maximal probability (figure 6).",
        beside=_beside_bins,
    ),
    Figure(
        "values-mass",
        mass_chart,
        read="How much probability a value gives to all tokens that follow its key's triggers, and "
        "in grey what it gives to those of another key. Above the grey line a value is about what "
        "follows its pattern, not only about one token. The softmax of a value is not calibrated: "
        "compare the two lines, not the heights.",
        paper="A conjecture of the paper: values are distributions of what follows the pattern. It "
        "tests only the next token of the top trigger.",
        drawn_if=lambda result: bool(result.mass),
    ),
    Figure(
        "values-predictive",
        _predictive_chart,
        read="The values with the highest top-token probability, compared with random ones, and "
        "with random ones of the same layers.",
        paper="Of the 100 values with the highest top-token probability 97 are in layers 11 to 16; "
        "46 have at least one agreeing trigger among 50.",
        beside=_beside_predictive,
    ),
)
