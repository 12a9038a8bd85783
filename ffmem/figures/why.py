"""Why a token: predicted effects by layer and place, and the memories that wake others."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import altair as alt

from ffmem.address import Address
from ffmem.figures import style
from ffmem.memories.why.record import Why
from ffmem.text import visible_token

CELL, ROW = 26, 18  # pixels of a place and of a layer in the heat map
NODE = 70  # pixels of a memory in the graph
GOLDEN = (5**0.5 - 1) / 2  # its multiples, without their whole part, keep apart
Node = tuple[Address, int]  # a memory at a place


def heat_map(found: Why) -> Any:
    """The sum of the predicted effects of each layer at each place."""
    places = [
        f"{number} {visible_token(token)}" for number, token in enumerate(found.tokens, start=1)
    ]
    rows: list[style.Row] = [
        {
            "layer": layer.layer,
            "place": place,
            "predicted": value,
            "speaks": "for" if value > 0 else "against",
            "size": abs(value),
        }
        for layer in found.layers
        for place, value in zip(places, layer.predicted, strict=True)
    ]
    cells = (
        style.base(rows)
        .mark_rect()
        .encode(
            x=alt.X("place:N", sort=places, title="tokens read", axis=alt.Axis(labelAngle=-60)),
            y=alt.Y("layer:O", sort="descending", title="layer"),
            color=style.series("speaks", ("for", "against"), (style.BLUE, style.ORANGE)),
            opacity=alt.Opacity("size:Q", legend=None, scale=alt.Scale(range=[0, 1])),
            tooltip=style.tooltip("layer:O", "place:N", "predicted:Q"),
        )
    )
    caption = (
        f"Sums over the memories of a layer, {prediction(found)}; the strongest is "
        f"{max(row['size'] for row in rows):.2f}. They agree with true silencing "
        f"at a correlation of {found.agreement:.2f} in the list of the strongest."
    )
    sized = style.with_size(cells, max(CELL * len(places), 240), ROW * len(found.layers))
    return style.with_caption(sized, f"Why {visible_token(found.token)}", caption)


def prediction(found: Why) -> str:
    """How effects were predicted."""
    if found.method == "linear":
        return "with norms, attention patterns and activations frozen"
    return "coefficient x gradient"


def edge_graph(found: Why) -> Any:
    """Memories by place and layer; a line leads from each to one that it wakes."""
    where, middles = layout(found)
    rows = [
        {
            "from": str(edge.source),
            "to": str(edge.target),
            "predicted": edge.predicted,
            "true": edge.true,
            "wakes": "wakes" if edge.true > 0 else "holds back",
            "size": abs(edge.true),
            "x": where[edge.source, edge.source_place],
            "y": edge.source.layer,
            "x2": where[edge.target, edge.target_place],
            "y2": edge.target.layer,
        }
        for edge in found.edges
    ]
    tokens = [f"{number} {visible_token(text)}" for number, text in enumerate(found.tokens, 1)]
    shown = [tokens[place - 1] for place in middles]
    at = json.dumps(list(middles.values()))
    places = alt.Axis(
        values=list(middles.values()),
        labelExpr=f"{json.dumps(shown)}[indexof({at}, datum.value)]",
        labelAngle=-60,
    )
    numbers = [node[0].layer for node in where]
    layers = alt.Axis(values=list(range(min(numbers), max(numbers) + 1)), format="d")
    lines = (
        style.base(rows)
        .mark_rule(opacity=0.7)
        .encode(
            x=alt.X(
                "x:Q", scale=alt.Scale(zero=False, padding=20), axis=places, title="tokens read"
            ),
            y=alt.Y("y:Q", scale=alt.Scale(zero=False, nice=False), axis=layers, title="layer"),
            x2="x2",
            y2="y2",
            color=style.series("wakes", ("wakes", "holds back"), (style.BLUE, style.ORANGE)),
            size=alt.Size("size:Q", legend=None, scale=alt.Scale(range=[0.5, 3])),
            tooltip=style.tooltip("from:N", "to:N", "predicted:Q", "true:Q"),
        )
    )
    names = [{"memory": str(node[0]), "x": x, "y": node[0].layer} for node, x in where.items()]
    dots = style.base(names).mark_circle(color=style.GREY, opacity=1).encode(x="x:Q", y="y:Q")
    words = (
        style.base(names)
        .mark_text(dy=-8, fontSize=10, color=style.INK)
        .encode(x="x:Q", y="y:Q", text="memory:N")
    )
    chart = style.with_size(lines + dots + words, int(NODE * max(where.values())) + NODE, 420)
    caption = (
        "The score of the upper memory's key falls by the true effect when the lower one is "
        "replaced. Wider lines are larger effects."
    )
    return style.with_caption(
        chart, f"Memories that wake those for {visible_token(found.token)}", caption
    )


def layout(found: Why) -> tuple[dict[Node, float], dict[int, float]]:
    """Where each memory of the graph stands from left to right, and the middle of each place.

    A place is as wide as the layer with most of its memories. Each layer is shifted by an amount of
    its own, so that a line passes beside memories between its ends.
    """
    nodes: dict[int, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    ends = [((e.source, e.source_place), (e.target, e.target_place)) for e in found.edges]
    for node in dict.fromkeys(node for edge in ends for node in edge):
        nodes[node[1]][node[0].layer].append(node)
    where: dict[Node, float] = {}
    middles: dict[int, float] = {}
    start = 0.0
    for place, layers in sorted(nodes.items()):
        width = max(map(len, layers.values()))
        middles[place] = start + width / 2
        for layer, group in layers.items():
            shift = 0.1 + 0.8 * (layer * GOLDEN % 1)
            for number, node in enumerate(group):
                where[node] = start + (number + shift) * width / len(group)
        start += width
    return where, middles
