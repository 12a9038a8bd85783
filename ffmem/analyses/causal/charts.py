"""Charts of the effect of silencing (ablating) and forcing a memory, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.causal.record import Causal
from ffmem.figures import style
from ffmem.figures.style import Row

NAMES = {
    "silenced": "silenced at its triggers",
    "other_silenced": "a memory of like strength silenced there",
    "forced": "forced on elsewhere",
    "unrelated": "silenced on random text",
    "silenced_elsewhere": "silenced where it is quiet",
}
CONTROLS = "controls (another memory, random text, where it is quiet)"
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


def _effect_rows(result: Causal) -> list[Row]:
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
                        **interval.fields("change", "memories"),
                        "cases": found.triggers,
                    }
                )
    return rows


def _beside_silenced(result: Causal) -> list[Row]:
    """The same of a control's memories, silenced at their triggers."""
    return [
        {
            "layer": found.layer,
            "measure": measure,
            "beside": getattr(found.silenced, measure).estimate,
            "cases": found.triggers,
        }
        for found in result.layers
        for measure in MEASURES
    ]


def _effect_chart(result: Causal, beside: Sequence[Row] = (), *, measure: str) -> Any:
    """Lines with bands for one measure; what lies between the controls in grey."""
    rows = _effect_rows(result)
    every = style.base([*rows, *beside], style.enough_cases("cases", style.LEAST_MEAN))
    every = every.transform_filter(alt.datum.measure == measure)
    data = style.own_rows(every)
    own, names = (NAMES["silenced"], NAMES["forced"]), tuple(NAMES.values())
    controls = [name for name in names if name not in own]
    colour = style.series("series", (*own, CONTROLS), (style.BLUE, style.ORANGE, style.CONTROL))
    x, y = style.layer_axis(), alt.Y("change:Q", title=MEASURES[measure])
    control = style.band_of(data, "change", controls, CONTROLS).encode(color=colour)
    data = data.transform_filter({"field": "series", "oneOf": list(own)})
    lines = data.mark_line(point=alt.OverlayMarkDef(size=20)).encode(x=x, y=y, color=colour)
    band = style.interval_band(data, x, colour)
    first = result.layers[0]
    caption = (
        f"{CAPTIONS[measure].format(tokens=result.tokens)} {first.memories} random memories per "
        f"layer at {first.triggers} triggers. Controls: another memory silenced there, which "
        "adds a vector most nearly as long; the memory silenced on random text, and where it is "
        "quiet. Coloured bands: 95 % bootstrap over memories."
        + style.beside_note(beside, "silenced at its triggers")
        + style.few_cases_note(
            [row for row in rows if row["measure"] == measure], "cases", style.LEAST_MEAN
        )
    )
    chart = style.with_size(alt.layer(control, *style.beside_band(every, beside), band, lines))
    return style.with_caption(chart, TITLES[measure], caption)


FIGURES: tuple[Figure[Causal], ...] = (
    Figure(
        "causal-value-tokens",
        partial(_effect_chart, measure="value_log_probability"),
        read="Change of the value's own top tokens. Silencing (ablating) the memory should lower "
        "them, forcing it should raise them, and the controls should stay near zero.",
        paper="Not in the paper.",
        beside=_beside_silenced,
    ),
    Figure(
        "causal-next-token",
        partial(_effect_chart, measure="next_probability"),
        read="Change of the probability of the token that follows in the text.",
        paper="Not in the paper.",
        beside=_beside_silenced,
    ),
    Figure(
        "causal-divergence",
        partial(_effect_chart, measure="kl"),
        read="KL divergence between the next-token distributions before and after, in nats.",
        paper="Not in the paper.",
        beside=_beside_silenced,
    ),
)
