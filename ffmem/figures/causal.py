"""Charts of the effect of silencing (ablating) and forcing a memory, layer by layer."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.causal import Causal
from ffmem.figures import style
from ffmem.figures.style import FigureText, Row

NAMES = {
    "silenced": "silenced at its triggers",
    "other_silenced": "a memory of like strength silenced there",
    "forced": "forced on elsewhere",
    "unrelated": "silenced on random text",
    "silenced_elsewhere": "silenced where it is quiet",
}
MEASURES = {
    "value_log_probability": "change in log-probability of the value's tokens",
    "next_probability": "change in probability of the true next token",
    "kl": "KL of the distribution, nats",
}
TITLES = {
    "value_log_probability": "Silenced or forced memory: change of its value's tokens",
    "next_probability": "Silenced or forced memory: change of the true next token",
    "kl": "Silenced or forced memory: shift of the next-token distribution",
}
CAPTIONS = {
    "value_log_probability": "Mean change of the log-probability of the {tokens} tokens that the "
    "value promotes most.",
    "next_probability": "Mean change of the probability of the token that really follows.",
    "kl": "KL divergence of the distribution after the change from the one before it.",
}

TEXTS = (
    FigureText(
        "causal-value-tokens",
        "Change of the value's own top tokens. Silencing (ablating) the memory should lower them, "
        "forcing it should raise them, and the controls should stay near zero.",
        "Not in the paper.",
        claims=("silencing-matters",),
    ),
    FigureText(
        "causal-next-token",
        "Change of the probability of the token that follows in the text.",
        "Not in the paper.",
    ),
    FigureText(
        "causal-divergence",
        "KL divergence between the next-token distributions before and after, in nats.",
        "Not in the paper.",
    ),
)


def charts(result: Causal) -> dict[str, Any]:
    """Every figure of this analysis by its file name."""
    return {
        "causal-value-tokens": effect_chart(result, "value_log_probability"),
        "causal-next-token": effect_chart(result, "next_probability"),
        "causal-divergence": effect_chart(result, "kl"),
    }


def effect_rows(result: Causal) -> list[Row]:
    """One row per layer, change and measure."""
    rows: list[Row] = []
    for found in result.layers:
        for name, series in NAMES.items():
            for measure in ("value_probability", *MEASURES):
                interval = getattr(getattr(found, name), measure)
                rows.append(
                    {
                        "layer": found.layer,
                        "series": series,
                        "measure": measure,
                        "change": interval.estimate,
                        "low": interval.low,
                        "high": interval.high,
                        "memories": interval.n,
                        "cases": found.triggers,
                    }
                )
    return rows


def effect_chart(result: Causal, measure: str) -> Any:
    """Lines with bands for one measure; controls in grey and green."""
    rows = effect_rows(result)
    data = style.base(rows, style.enough_cases("cases", style.LEAST_MEAN))
    data = data.transform_filter(alt.datum.measure == measure)
    names = tuple(NAMES.values())
    colours = (style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.GREY)
    colour = style.series("series", names, colours)
    x = style.layer_axis()
    lines = data.mark_line(point=alt.OverlayMarkDef(size=20)).encode(
        x=x, y=alt.Y("change:Q", title=MEASURES[measure]), color=colour
    )
    band = data.mark_area(opacity=0.15).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    first = result.layers[0]
    caption = (
        f"{CAPTIONS[measure].format(tokens=result.tokens)} {first.memories} random memories per "
        f"layer at {first.triggers} triggers. The memory of like strength is the one that adds a "
        "vector most nearly as long there. Bands: 95 % bootstrap over memories."
        + style.few_cases_note(
            [row for row in rows if row["measure"] == measure], "cases", style.LEAST_MEAN
        )
    )
    chart = style.with_size(alt.layer(band, lines))
    return style.with_caption(chart, TITLES[measure], caption)
