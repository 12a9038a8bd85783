"""Figures 9, 10 and 11 of the paper, and the veto test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.refinement.record import LayerStep, Refinement
from ffmem.analyses.statistics import Interval
from ffmem.figures import style
from ffmem.figures.style import Row

COLOURS = (style.BLUE, style.ORANGE, style.GREY)


def _conventions(result: Refinement) -> list[str]:
    return [rows.convention for rows in result.conventions]


def _beside_steps(result: Refinement, number: Callable[[LayerStep], Interval]) -> list[Row]:
    """A control's number by convention and layer."""
    return [
        {
            "convention": rows.convention,
            "layer": step.layer,
            "beside": number(step).estimate,
            "n": number(step).n,
        }
        for rows in result.conventions
        for step in rows.steps
    ]


def _final_token_chart(result: Refinement, beside: Sequence[Row] = ()) -> Any:
    """Figure 9: bars with intervals, the shuffled control as a line."""
    names = ("own final token", "another prefix's")
    rows: list[Row] = [
        {
            "convention": rows.convention,
            "layer": step.layer,
            "series": name,
            **share.fields("share"),
        }
        for rows in result.conventions
        for step in rows.steps
        for name, share in zip(names, (step.settled, step.shuffled), strict=True)
    ]
    data = style.base([*rows, *beside], style.enough_cases())
    x, y = style.layer_axis(), style.percent("share", "residual has it on top", domain=[0, 1])
    colour = style.series("series", names, (style.BLUE, style.GREY))
    own, other = (data.transform_filter(alt.datum.series == name) for name in names)
    chart = alt.layer(
        own.mark_bar(opacity=0.75).encode(x=x, y=y, color=colour),
        own.mark_rule(color=style.INK).encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        other.mark_line(point=True).encode(x=x, y=y, color=colour),
        *style.beside_band(data, beside, ("layer", "convention")),
    )
    groups = _conventions(result)
    caption = (
        f"Share of {result.prefixes:,} validation prefixes whose residual before the layer already "
        "has the model's final token on top (figure 9), 95 % Wilson intervals. Grey: the final "
        "token of another prefix." + style.beside_note(beside) + style.few_cases_note(rows)
    )
    panels = style.by_group(chart, "convention", groups)
    return style.with_caption(
        panels, "Residual with the final token on top (Fig. 9)", caption, len(groups)
    )


def probability_chart(result: Refinement, beside: Sequence[Row] = ()) -> Any:
    """Figure 10: a box per layer."""
    rows: list[Row] = [
        {
            "convention": rows.convention,
            "layer": step.layer,
            **style.quantile_fields(step.probability_quantiles),
            "mean": step.mean_probability.estimate,
            "n": step.mean_probability.n,
        }
        for rows in result.conventions
        for step in rows.steps
    ]
    every = style.base([*rows, *beside], style.enough_cases())
    data, x = style.own_rows(every), style.layer_axis()
    mean = data.mark_line(color=style.ORANGE, point=alt.OverlayMarkDef(size=18)).encode(
        x=x, y=alt.Y("mean:Q")
    )
    title = "probability of the final token"
    band = style.beside_band(every, beside, ("layer", "convention"))
    chart = alt.layer(style.box(data, x, title, domain=[0, 1]), *band, mean)
    groups = _conventions(result)
    caption = (
        "Probability that the residual before each layer gives to the model's final token "
        "(figure 10): median, quartiles, 5 to 95 %; the line is the mean."
        + style.beside_note(beside, "the mean")
        + style.few_cases_note(rows)
    )
    panels = style.by_group(chart, "convention", groups)
    return style.with_caption(
        panels, "Probability of the final token in the residual (Fig. 10)", caption, len(groups)
    )


def _beside_kept(result: Refinement) -> list[Row]:
    """How often a control's layer leaves the residual's token in place."""
    return [
        {
            "convention": rows.convention,
            "layer": step.layer,
            "beside": step.residual.estimate + step.agreement.estimate,
        }
        for rows in result.conventions
        for step in rows.steps
    ]


def _winners_chart(result: Refinement, beside: Sequence[Row] = ()) -> Any:
    """Figure 11: stacked shares."""
    names = {
        "residual": "the residual’s",
        "agreement": "both (agreement)",
        "composition": "neither’s (composition)",
        "ffn": "the layer’s own",
    }
    rows: list[Row] = [
        {
            "convention": rows.convention,
            "layer": step.layer,
            "winner": names[name],
            "order": order,
            "share": getattr(step, name).estimate,
            "low": getattr(step, name).low,
            "high": getattr(step, name).high,
            "veto_both": step.veto_both.estimate,
        }
        for rows in result.conventions
        for step in rows.steps
        for order, name in enumerate(names)
    ]
    colours = (style.BLUE, style.GREEN, style.ORANGE, style.PURPLE)
    data = style.base([*rows, *beside])
    bars = (
        style.own_rows(data)
        .mark_bar()
        .encode(
            x=style.layer_axis(),
            y=style.percent("share", "prefixes", domain=[0, 1]),
            color=style.series("winner", list(names.values()), colours),
            order=alt.Order("order:Q"),
        )
    )
    chart = alt.layer(bars, *style.beside_band(data, beside, ("layer", "convention")))
    groups = _conventions(result)
    most = max(step.veto_both.estimate for rows in result.conventions for step in rows.steps)
    caption = (
        "Whose top token is the block's (figure 11): the residual's, both, neither's (composition) "
        "or the layer's (ffn). Residual and layer agree and are outvoted in at most "
        f"{100 * most:.1f} %; that is counted as composition."
        + style.beside_note(beside, "where blue and green end")
    )
    panels = style.by_group(chart, "convention", groups)
    return style.with_caption(
        panels, "Whose top token the block outputs (Fig. 11)", caption, len(groups)
    )


def _beside_veto(result: Refinement) -> list[Row]:
    """How often a control's layer pushes down the token that is replaced."""
    return [
        {
            "layer": row.layer,
            "beside": row.old_pushed_down.estimate,
            "n": row.old_pushed_down.n,
        }
        for row in result.conventions[0].veto
    ]


def _veto_chart(result: Refinement, beside: Sequence[Row] = ()) -> Any:
    """The rank of the old token under the layer's own output, changed and unchanged."""
    names = ("token is replaced", "token stays")
    rows: list[Row] = [
        {
            "layer": row.layer,
            "series": name,
            **share.fields("share"),
            "median_rank": rank[2],
            "new_in_top_10": row.new_in_top_10.estimate,
        }
        for row in result.conventions[0].veto
        for name, share, rank in (
            (names[0], row.old_pushed_down, row.old_rank),
            (names[1], row.unchanged_pushed_down, row.unchanged_old_rank),
        )
    ]
    every = style.base([*rows, *beside], style.enough_cases())
    data, x = style.own_rows(every), style.layer_axis()
    colour = style.series("series", names, (style.ORANGE, style.GREY))

    def panel(field: str, title: str) -> Any:
        lines = data.mark_line(point=True).encode(
            x=x, y=style.percent(field, title, domain=[0, 1]), color=colour
        )
        return style.with_size(lines, width=style.panel_width(2))

    pushed = panel("share", "layer pushes it down (logit below 0)")
    band = style.interval_band(data, x, colour)
    controls = style.beside_band(every, beside)
    pushed = style.with_size(alt.layer(*controls, band, pushed), width=style.panel_width(2))
    chart = alt.hconcat(pushed, panel("median_rank", "median rank under y (100 % is the bottom)"))
    caption = (
        "The residual's top token under the layer's own output y. If layers changed predictions by "
        "veto, replaced tokens would stand at the bottom of y. Grey: tokens that stay."
        + style.beside_note(beside, "replaced tokens")
        + style.few_cases_note(rows)
    )
    return style.with_caption(
        chart, "The replaced token under the layer's output (veto test)", caption, 2
    )


def _logit_chart(result: Refinement) -> Any:
    """By how much a layer moves the logits of the old and of the new token, where they differ."""
    names = ("new token", "old token", "token that stays")
    rows: list[Row] = [
        {"layer": row.layer, "series": name, **style.quantile_fields(found), "changes": row.changes}
        for row in result.conventions[0].veto
        for name, found in zip(
            names, (row.new_change, row.old_change, row.unchanged_change), strict=True
        )
    ]
    data = style.base(rows)
    x, colour = style.layer_axis(), style.series("series", names, COLOURS)
    y = alt.Y("q50:Q", title="change of the logit, o less r (median, quartiles)")
    band = style.interval_band(data, x, colour, "q25", "q75")
    lines = data.mark_line(point=True).encode(x=x, y=y, color=colour)
    zero = data.mark_rule(color=style.INK, aria=False).encode(y=alt.YDatum(0))
    caption = (
        "Where a layer changes the top token: how much the logits of the old and of the new one "
        "move. A veto lowers the old token; a vote raises the new one. Grey: tokens that stay."
    )
    chart = style.with_size(alt.layer(zero, band, lines))
    return style.with_caption(chart, "Logit change of the old and the new token", caption)


def _entropy_chart(result: Refinement) -> Any:
    """The model's entropy by the length of the prefix."""
    rows: list[Row] = [
        {
            "tokens": f"{row.shortest} to {row.longest}",
            **style.quantile_fields(row.quantiles),
            **row.mean.fields("mean"),
        }
        for row in result.entropy
    ]
    data = style.base(rows, style.enough_cases())
    x = alt.X("tokens:N", title="tokens of the prefix", sort=None, axis=alt.Axis(labelAngle=0))
    most = math.log(result.vocabulary)
    chart = style.with_size(
        style.box(data, x, "entropy of the next token (nats)", domain=[0, most])
    )
    caption = (
        f"Entropy of the model's distribution over {result.prefixes:,} validation prefixes: "
        f"median, quartiles, 5 to 95 %. The axis ends at the largest there can be, {most:.1f}."
        + style.few_cases_note(rows)
    )
    return style.with_caption(chart, "Entropy of the next token by length of the prefix", caption)


FIGURES: tuple[Figure[Refinement], ...] = (
    Figure(
        "refinement-settled",
        _final_token_chart,
        read="Share of prefixes whose final token is already on top of the residual (logit lens).",
        paper="About a third in the bottom few layers, growing fast from layer 10 (figure 9).",
        beside=lambda result: _beside_steps(result, lambda step: step.settled),
    ),
    Figure(
        "refinement-probability",
        probability_chart,
        read="The probability that the residual gives to the final token.",
        paper="Rises through the layers (figure 10).",
        beside=lambda result: _beside_steps(result, lambda step: step.mean_probability),
    ),
    Figure(
        "refinement-winners",
        _winners_chart,
        read="Each bar adds up to all prefixes. r is the residual before the layer, x = "
        "LayerNorm(r) what its keys read, y = FF(x) what it adds, o = y + r what leaves the block: "
        "the token of o is that of r, of both, of y, or of neither (composition).",
        paper="Residual and agreement the vast majority; composition far above ffn (figure 11).",
        beside=_beside_kept,
    ),
    Figure(
        "refinement-veto",
        _veto_chart,
        read="Where the token changes: how often the layer pushes the old one down, compared with "
        "tokens that stay on top.",
        paper="A conjecture there, not measured.",
        beside=_beside_veto,
    ),
    Figure(
        "refinement-logits",
        _logit_chart,
        read="Where the token changes: how far the layer moves the logits of the old and of the "
        "new one.",
        paper="A conjecture there, not measured.",
    ),
    Figure(
        "refinement-entropy",
        _entropy_chart,
        read="Entropy of the next-token distribution, by the number of tokens read; lower is more "
        "certain.",
        paper="Not in the paper.",
    ),
)
