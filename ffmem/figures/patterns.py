"""Fig 2: shares of triggers by the kind of pattern that covers them, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from ffmem.analyses.pattern_study import ControlRate
from ffmem.analyses.patterns import LABELS, Summary

COLOURS = ("#2a78d6", "#8c6bc8", "#eb6834", "#d9dce1")


def patterns_chart(summary: Summary, controls: Sequence[ControlRate] = ()) -> alt.Chart:
    """Stacked bars, shallow at the bottom, what no pattern covers on top."""
    rows = [
        {
            "layer": layer.layer,
            "label": label,
            "order": LABELS.index(label),
            "share": 100 * layer.shares[label].estimate,
            "low": 100 * layer.shares[label].low,
            "high": 100 * layer.shares[label].high,
            "keys": layer.keys,
        }
        for layer in summary.layers
        for label in LABELS
    ]
    scale = alt.Scale(domain=list(LABELS), range=list(COLOURS))
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(
                "share:Q",
                title="share of triggers (%)",
                stack=True,
                scale=alt.Scale(domain=[0, 100]),
            ),
            color=alt.Color("label:N", title="pattern", scale=scale, sort=list(LABELS)),
            order=alt.Order("order:Q"),
            tooltip=["layer:O", "label:N", "share:Q", "low:Q", "high:Q", "keys:Q"],
        )
        .properties(
            width=520,
            height=280,
            title=alt.TitleParams(
                "What the triggers of a key share",
                subtitle=caption(summary, controls),
                anchor="start",
            ),
        )
    )


def caption(summary: Summary, controls: Sequence[ControlRate]) -> str:
    """Who annotated how much, and how often where there was nothing."""
    overall = summary.overall
    text = f"{overall.keys:,} keys, {overall.triggers:,} triggers, annotator: {summary.annotator}"
    false = ", ".join(
        f"{100 * control.false_patterns.estimate:.0f} % ({control.kind})" for control in controls
    )
    return f"{text}; control keys with a pattern: {false}" if controls else text
