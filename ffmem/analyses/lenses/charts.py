"""Agreement under several ways to read a value, each beside its chance level."""

from __future__ import annotations

from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.lenses.record import Lenses
from ffmem.figures import style
from ffmem.figures.style import Row


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
    band = style.interval_band(data, x, colour)
    first = result.fits[0]
    caption = (
        f"Each layer's output at {first.learned.n:,} held-out places of the scanned text, read "
        f"through the head; maps fitted on {first.fitted_on:,} other places. Bands: 95 % Wilson."
    )
    chart = style.with_size(alt.layer(band, lines))
    return style.with_caption(chart, "Agreement with the model under a learned lens", caption)


def _lens_rows(result: Lenses) -> list[Row]:
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
    data, lenses = style.base(_lens_rows(result), style.enough_cases()), _lenses_with_cases(result)
    names = ("own trigger", "keys shuffled")
    colour = style.series("series", names, (style.BLUE, style.GREY))
    x = style.layer_axis()
    lines = data.mark_line(point=True).encode(x=x, y=style.percent(field, title), color=colour)
    if not band:
        return style.by_group(lines, "lens", lenses)
    area = style.interval_band(data, x, colour)
    return style.by_group(alt.layer(area, lines), "lens", lenses)


def _lenses_with_cases(result: Lenses) -> list[str]:
    """The lenses of which some layer has enough cases to be drawn."""
    cases = {row.lens: row.agreement.n for row in sorted(result.rows, key=lambda r: r.agreement.n)}
    return [name for name in result.lenses if cases.get(name, 0) >= style.LEAST_SHARE]


def _lenses_note(result: Lenses) -> str:
    """For a caption: the lenses that are not drawn, and why."""
    few = [name for name in result.lenses if name not in _lenses_with_cases(result)]
    least = style.LEAST_SHARE
    return f" Not drawn, with fewer than {least} cases per layer: {', '.join(few)}." if few else ""


def _top_10_chart(result: Lenses) -> Any:
    """Share of cells whose next token is among the value's ten best."""
    chart = _panels(result, "top_10", "next token among the ten best", band=True)
    caption = (
        "The strongest trigger's next token under each lens, 95 % Wilson bands; grey: another "
        f"key's. Measured: {result.measured_memories} memories per layer forced on at "
        f"{result.measured_prefixes} random prefixes, change of the model's own scores."
        + _lenses_note(result)
    )
    return style.with_caption(chart, "Agreement under other projections", caption, 3)


def _rank_chart(result: Lenses) -> Any:
    """Median rank as a share of the vocabulary."""
    chart = _panels(result, "median_rank", "median rank, share of the vocabulary", band=False)
    caption = (
        "Median rank of the next token under each lens; grey: another key's next token."
        + _lenses_note(result)
    )
    return style.with_caption(chart, "Rank of the next token under other projections", caption, 3)


def _similarity_chart(result: Lenses) -> Any:
    """Layers by layers: below the diagonal how alike they are, above it the shuffled control."""
    kinds = {"outputs": "states", "values over tokens": "values"}
    rows: list[Row] = []
    for pair in result.similarity:
        for kind, field in kinds.items():
            own, chance = getattr(pair, field), getattr(pair, f"shuffled_{field}")
            place = {"kind": kind, "layer": pair.other, "other": pair.layer}
            rows.append({**place, "CKA": own, "order": "as it is"})
            turned = {"layer": pair.layer, "other": pair.other}
            rows.append({**place, **turned, "CKA": chance, "order": "shuffled"})
    data = style.base(rows)
    marks = data.mark_rect(color=style.BLUE).encode(
        x=style.layer_axis(),
        y=alt.Y("other:O", title="layer", sort="descending"),
        opacity=alt.Opacity("CKA:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1])),
    )
    ends = min(result.similarity, key=lambda pair: pair.layer - pair.other)
    near = [pair.states for pair in result.similarity if pair.other == pair.layer + 1]
    caption = (
        "Linear CKA of every two layers: of their outputs at the same places of the scanned text, "
        "and of what their values say of the same tokens. Below the diagonal: as they are; above "
        "it: places, or tokens, of one layer shuffled. Outputs of neighbours: "
        f"{min(near):.2f} to {max(near):.2f}; of layers {ends.layer} and {ends.other}: "
        f"{ends.states:.2f} (shuffled {ends.shuffled_states:.2f}); their values: {ends.values:.2f} "
        f"(shuffled {ends.shuffled_values:.2f})."
    )
    panels = style.by_group(marks, "kind", list(kinds))
    return style.with_caption(panels, "Similarity of the layers' spaces", caption, 2)


FIGURES: tuple[Figure[Lenses], ...] = (
    Figure(
        "lenses-top-10",
        _top_10_chart,
        read="The same question under several readings of a value, each with its own chance level. "
        "‘Measured’ forces the memory on and reads what the model then predicts.",
        paper="Not in the paper, which asks whether lower layers live in another space.",
    ),
    Figure(
        "lenses-rank",
        _rank_chart,
        read="As above, by rank: lower is better.",
        paper="Not in the paper.",
    ),
    Figure(
        "lenses-learned",
        learned_lens_chart,
        read="How often a layer's output already has the model's own top token: read as it is, "
        "through an affine map to the last layer that was fitted on other places of the text (a "
        "tuned lens), and through a map fitted on shuffled pairs. Blue above grey in the lower "
        "layers means that they encode the token in another basis.",
        paper="Not in the paper, which asks whether lower layers live in another space.",
        drawn_if=lambda result: bool(result.fits),
    ),
    Figure(
        "lenses-similarity",
        _similarity_chart,
        read="The darker, the more two layers arrange the same places, or the same tokens, alike, "
        "whatever the basis. Above the diagonal they are shuffled, which is what two unrelated "
        "layers would show.",
        paper="Not in the paper, which asks whether all layers share one embedding space.",
        drawn_if=lambda result: bool(result.similarity),
    ),
)
