"""Figures 2 and 3: the patterns of triggers, and what removing a token changes.

Fig 2: shares of triggers by the kind of pattern that covers them, layer by layer. Fig 3: the change
of the coefficient by layer and by the token removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ffmem.analyses.removal import REMOVALS, Removal
from ffmem.figures import style
from ffmem.figures.style import FigureText
from ffmem.patterns.analysis import BAR, ControlRate, PatternResults, hardest_control
from ffmem.patterns.record import LABELS, Summary

TEXTS = (
    FigureText(
        "patterns",
        "Each bar is one layer; its parts add up to all triggers of the drawn keys. Orange "
        "growing upwards would mean that upper layers look for meaning. What the annotator "
        "finds on control keys, where there is nothing to find, is in the caption: random "
        "prefixes, prefixes with last tokens as common or of the same lengths as the triggers, and "
        "strangers, one trigger of each of 25 keys of the layer.",
        "Layers 1 to 9 mostly shallow, 10 to 16 mostly semantic; 65 to 80 % covered "
        "(figure 2, annotated by people).",
        claims=(
            "every-key-has-a-pattern",
            "several-patterns-a-key",
            "most-triggers-are-covered",
            "semantic-takes-over",
        ),
    ),
)
REMOVAL_TEXTS = (
    FigureText(
        "removal",
        "The lower a line, the more of the coefficient is lost with that token. A key that "
        "only looks at the last word loses all of it with the last token.",
        "The last token costs most, and less so in upper layers (figure 3).",
        claims=("last-token-matters-most", "last-token-fades"),
    ),
)


def charts(result: PatternResults) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    return {"patterns": patterns_chart(result.summary, result.controls)}


def patterns_chart(summary: Summary, controls: Sequence[ControlRate] = ()) -> Any:
    """Stacked bars, shallow at the bottom, what no pattern covers on top."""
    rows = [
        {
            "layer": layer.layer,
            "label": label,
            "order": LABELS.index(label),
            "share": layer.shares[label].estimate,
            "low": layer.shares[label].low,
            "high": layer.shares[label].high,
            "keys": layer.keys,
            "triggers": layer.triggers,
        }
        for layer in summary.layers
        for label in LABELS
    ]
    colours = (style.BLUE, style.PURPLE, style.ORANGE, style.GREY)
    chart = (
        style.base(rows, style.enough_cases("triggers"))
        .mark_bar()
        .encode(
            x=style.layer_axis(),
            y=alt.Y(
                "share:Q",
                title="share of triggers",
                stack=True,
                axis=alt.Axis(format="~%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=style.series("label", LABELS, colours),
            order=alt.Order("order:Q"),
            tooltip=style.tooltip("layer:O", "label:N", "share:Q", "low:Q", "high:Q", "keys:Q"),
        )
    )
    title = "Triggers by kind of shared pattern (Fig. 2)"
    text = patterns_caption(summary, controls) + style.few_cases_note(rows, "triggers")
    return style.with_caption(style.with_size(chart), title, text)


def patterns_caption(summary: Summary, controls: Sequence[ControlRate]) -> str:
    """Who annotated how much, and how often where there was nothing."""
    overall = summary.overall
    text = (
        f"The {overall.triggers:,} strongest triggers of {overall.keys:,} keys by the patterns "
        f"that annotator ‘{summary.annotator}’ found (figure 2)."
    )
    worst = hardest_control(controls)
    if worst is None:
        return text
    false = ", ".join(
        f"{100 * control.false_patterns.estimate:.0f} % of {control.false_patterns.n} "
        f"({control.kind})"
        for control in controls
    )
    meaning = sum(overall.shares[label].estimate for label in LABELS if "semantic" in label)
    text += (
        f" Control keys that got a pattern: {false}. Semantic patterns cover {100 * meaning:.0f} %"
    )
    if worst.semantic_covered is not None:
        share = 100 * worst.semantic_covered
        text += f" of triggers and {share:.0f} % of the hardest control's prefixes"
    else:
        text += " of triggers"
    above = worst.false_patterns.estimate > BAR
    return text + (
        f"; with more than {100 * BAR:.0f} % false patterns it cannot be trusted." if above else "."
    )


def removal_charts(result: Removal) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    return {"removal": removal_chart(result)}


def removal_chart(result: Removal) -> Any:
    """One line for each removed token, with the interval over keys around it."""
    rows = [
        {
            "layer": layer.layer,
            "removed": f"{kind} token",
            "change": change.mean.estimate / 100,
            "low": change.mean.low / 100,
            "high": change.mean.high / 100,
            "triggers": layer.triggers,
        }
        for layer in result.layers
        for kind in REMOVALS
        if (change := getattr(layer, kind)).mean.n
    ]
    colour = style.series("removed", [f"{kind} token" for kind in REMOVALS])
    data = style.base(rows, style.enough_cases("triggers", style.LEAST_MEAN))
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
    text = removal_caption(result) + style.few_cases_note(rows, "triggers", style.LEAST_MEAN)
    return style.with_caption(style.with_size(alt.layer(band, line)), title, text)


def removal_caption(result: Removal) -> str:
    """The caption of the removal chart: sample, and what was left out."""
    triggers = sum(layer.triggers for layer in result.layers)
    keys = sum(layer.keys for layer in result.layers)
    short = sum(layer.short for layer in result.layers)
    return (
        f"Mean change when one token of a trigger is removed (figure 3): {keys:,} keys, "
        f"{triggers:,} of their {result.top} strongest triggers, {short:,} of one token left out. "
        "Bands: 95 % over keys."
    )
