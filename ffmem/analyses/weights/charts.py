"""Weights by layer: classes, cosines beside mismatched pairs, norms, and what stands out."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.weights.record import Weights
from ffmem.figures import style
from ffmem.figures.style import Row

SHORT = {
    "strengthening": "strengthening",
    "atypical strengthening": "strengthening",
    "conditional strengthening": "conditional strengthening",
    "atypical conditional strengthening": "conditional strengthening",
    "proportional change": "proportional change",
    "atypical proportional change": "proportional change",
    "orthogonal output": "orthogonal output",
    "weakening": "weakening",
    "atypical weakening": "weakening",
    "conditional weakening": "conditional weakening",
    "atypical conditional weakening": "conditional weakening",
}
KINDS = {  # that are drawn
    "strengthening": "strengthening, also conditional",
    "conditional strengthening": "strengthening, also conditional",
    "proportional change": "proportional change",
    "orthogonal output": "orthogonal output",
    "conditional weakening": "weakening, also conditional",
    "weakening": "weakening, also conditional",
}
COLOURS = {
    "strengthening, also conditional": style.BLUE,
    "proportional change": style.GREEN,
    "orthogonal output": style.CONTROL,
    "weakening, also conditional": style.ORANGE,
}


def _classes_chart(result: Weights) -> Any:
    """Shares of classes in every layer, and among mismatched pairs."""
    rows: list[Row] = []
    for layer in result.layers:
        for pairs, counts in (
            ("own pairs", layer.classes),
            ("mismatched pairs", layer.mismatched_classes),
        ):
            joined: dict[str, float] = {}
            for name, count in counts.items():
                joined[SHORT[name]] = joined.get(SHORT[name], 0.0) + count
            rows += [
                {
                    "layer": layer.layer,
                    "pairs": pairs,
                    "class": name,
                    "kind": KINDS[name],
                    "share": n / layer.memories,
                }
                for name, n in joined.items()
            ]
    names = [name for name in COLOURS if any(row["kind"] == name for row in rows)]
    colour = style.series("kind", names, [COLOURS[name] for name in names])
    order = alt.Order("rank:Q")
    ranks = {name: rank for rank, name in enumerate(names)}
    bars = (
        style.base([{**row, "rank": ranks[row["kind"]]} for row in rows])
        .mark_bar()
        .encode(
            x=style.layer_axis(),
            y=style.percent("share", "share of memories", domain=[0, 1]),
            color=colour,
            order=order,
            tooltip=style.tooltip("layer:O", "class:N", "share:Q"),
        )
    )
    chart = style.by_group(bars, "pairs", ("own pairs", "mismatched pairs"))
    caption = (
        f"Classes of {sum(layer.memories for layer in result.layers):,} memories at cosines of "
        "±0.5 between key, gate and value, norms folded in; typical and atypical ones together. "
        "Right: each memory with the value of another of its layer."
    )
    return style.with_caption(chart, "Classes of memories by key, gate and value", caption, 2)


def _cosines_chart(result: Weights) -> Any:
    """Cosines of each pair as boxes over the band of mismatched pairs."""
    rows = [
        {
            "layer": layer.layer,
            "pair": pair.replace("_", " and "),
            **style.quantile_fields(found.quantiles),
            "low": found.low,
            "high": found.high,
            "outside": found.outside,
        }
        for layer in result.layers
        for pair, found in layer.cosines.items()
    ]
    data, x = style.base(rows), style.layer_axis()
    band = data.mark_area(color=style.CONTROL, opacity=0.3).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")
    )
    boxes = style.box(data, x, "cosine")
    groups = list(dict.fromkeys(row["pair"] for row in rows))
    chart = style.by_group(alt.layer(band, boxes), "pair", groups)
    caption = (
        "Cosines inside one memory: median, quartiles, 5 to 95 %. Grey: what 95 % of mismatched "
        "pairs of the layer have."
    )
    return style.with_caption(chart, "Angles between key, gate and value", caption, len(groups))


def _norms_chart(result: Weights) -> Any:
    """Lengths of keys and values."""
    rows = [
        {"layer": layer.layer, "side": side, **style.quantile_fields(numbers)}
        for layer in result.layers
        for side, numbers in (("key", layer.key_norm), ("value", layer.value_norm))
    ]
    boxes = style.box(style.base(rows), style.layer_axis(), "length")
    chart = style.by_group(boxes, "side", ("key", "value"))
    caption = "Lengths with norms folded in: median, quartiles, 5 to 95 % of the layer."
    return style.with_caption(chart, "Lengths of keys and values", caption, 2)


def _roles_chart(result: Weights) -> Any:
    """How many memories of each layer stand out, and in which way."""
    names = ("prediction", "suppression", "entropy", "frequency", "entropy, mismatched")
    rows = [
        {"layer": layer.layer, "kind": kind, "memories": count}
        for layer in result.layers
        for kind, count in zip(
            names,
            (
                layer.prediction,
                layer.suppression,
                layer.entropy,
                layer.frequency,
                layer.control_entropy,
            ),
            strict=True,
        )
    ]
    lines = (
        style.base(rows)
        .transform_filter(alt.datum.kind != "frequency")
        .mark_line(point=True)
        .encode(
            x=style.layer_axis(),
            y=alt.Y("memories:Q", title="memories", axis=alt.Axis(tickMinStep=1, format=",d")),
            color=style.series("kind", [name for name in names if name != "frequency"]),
            tooltip=style.tooltip("layer:O", "kind:N", "memories:Q"),
        )
    )
    caption = (
        f"Prediction, suppression: kurtosis of the value's logits above 10, skew above or below 0; "
        f"{100 * result.random_peaked:.1f} % of random directions have it. Entropy: long values "
        "that tell tokens apart little, beside lengths and variances that are mismatched. Those of "
        f"frequency (by {result.frequency_from}) are in the CSV."
    )
    return style.with_caption(
        style.with_size(lines), "Prediction, suppression and entropy memories", caption
    )


FIGURES: tuple[Figure[Weights], ...] = (
    Figure(
        "weights-classes",
        _classes_chart,
        read="Strengthening memories add more of what they detect, weakening ones take it away, "
        "conditional ones do so where the gate is open; the rest write something other than they "
        "read. Mismatched pairs are nearly all orthogonal.",
        paper="Not in the paper; classes as in Gerstner and Schütze (2025).",
    ),
    Figure(
        "weights-cosines",
        _cosines_chart,
        read="Boxes outside the grey band are angles that mismatched pairs of the layer do not "
        "have.",
        paper="Not in the paper.",
    ),
    Figure(
        "weights-norms",
        _norms_chart,
        read="Lengths of keys and values, norms folded in, by layer.",
        paper="Not in the paper.",
    ),
    Figure(
        "weights-roles",
        _roles_chart,
        read="Prediction and suppression memories have logits with a kurtosis above 10; entropy "
        "and frequency candidates differ from the rest of their layer by five robust standard "
        "deviations.",
        paper="Not in the paper; after Gurnee et al. (2024) and Stolfo et al. (2024).",
    ),
)
