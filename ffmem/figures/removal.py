"""Fig 3: the change of the coefficient by layer and by the token removed."""

from __future__ import annotations

import altair as alt

from ffmem.analyses.removal import KINDS, Removal

COLOURS = ("#2a78d6", "#eb6834", "#1baf7a")


def removal_chart(result: Removal) -> alt.LayerChart | alt.FacetChart:
    """One line for each removed token, with the interval over keys around it."""
    rows = [
        {
            "layer": layer.layer,
            "removed": f"{kind} token",
            "change": change.mean.estimate,
            "low": change.mean.low,
            "high": change.mean.high,
            "triggers": layer.triggers,
        }
        for layer in result.layers
        for kind in KINDS
        if (change := getattr(layer, kind)).mean.n
    ]
    names = [f"{kind} token" for kind in KINDS]
    colour = alt.Color(
        "removed:N",
        sort=names,
        scale=alt.Scale(domain=names, range=COLOURS),
        legend=alt.Legend(title="removed", symbolOpacity=1),
    )
    axis = alt.Axis(labelAngle=0, grid=False)
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("layer:O", title="layer", axis=axis))
    band = base.mark_area(opacity=0.18, interpolate="linear").encode(
        y=alt.Y("low:Q", title="change in memory coefficient (%)"), y2="high:Q", color=colour
    )
    line = base.mark_line(point=alt.OverlayMarkDef(size=36), strokeWidth=2).encode(
        y="change:Q",
        color=colour,
        tooltip=["layer:O", "removed:N", "change:Q", "low:Q", "high:Q", "triggers:Q"],
    )
    return alt.layer(band, line).properties(
        width=520,
        height=280,
        title=alt.TitleParams(
            "What a key loses with a token of its trigger", subtitle=caption(result), anchor="start"
        ),
    )


def caption(result: Removal) -> str:
    """What was measured, and what was left out."""
    triggers = sum(layer.triggers for layer in result.layers)
    keys = sum(layer.keys for layer in result.layers)
    short = sum(layer.short for layer in result.layers)
    return (
        f"{keys:,} keys, {triggers:,} triggers (top {result.top}); {short:,} of one token left "
        "out; bands: 95 % over keys"
    )
