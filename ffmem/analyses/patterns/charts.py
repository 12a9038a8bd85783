"""Figure 2: shares of triggers by the kind of pattern that covers them, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ffmem.analyses.analysis import Figure
from ffmem.analyses.patterns.record import (
    BAR,
    LABELS,
    BlindReadings,
    ControlRate,
    LayerPatterns,
    PatternResults,
    Summary,
    hardest_control,
)
from ffmem.figures import style


def _beside_covered(result: PatternResults) -> list[style.Row]:
    """The share of a control's triggers that a pattern covers."""
    return [
        {"layer": layer.layer, "beside": layer.covered.estimate, "triggers": layer.triggers}
        for layer in result.summary.layers
    ]


def patterns_chart(
    summary: Summary, controls: Sequence[ControlRate] = (), beside: Sequence[style.Row] = ()
) -> Any:
    """Stacked bars, shallow at the bottom, what no pattern covers on top."""
    rows = _rows(summary)
    title = "Triggers by kind of shared pattern (Fig. 2)"
    text = _patterns_caption(summary, controls) + style.beside_note(beside, "what is covered")
    text += style.few_cases_note(rows, "triggers")
    data = style.base([*rows, *beside], style.enough_cases("triggers"))
    chart = alt.layer(_bars(style.own_rows(data)), *style.beside_band(data, beside))
    return style.with_caption(style.with_size(chart), title, text)


def readings_chart(found: BlindReadings) -> Any:
    """By a language model, beside the rule on these keys and the model on permuted keys."""
    panels = {
        "language model, read blind": found.summary,
        "the same keys by rule": found.rule,
        "permuted weights, read blind": found.permuted,
    }
    rows = [{"who": who, **row} for who, summary in panels.items() for row in _rows(summary)]
    bars = _bars(style.base(rows, style.enough_cases("triggers")))
    chart = style.by_group(bars, "who", tuple(panels))
    title = "Triggers by kind of shared pattern, read blind by a language model (Fig. 2)"
    text = _readings_caption(found) + style.few_cases_note(rows, "triggers")
    return style.with_caption(chart, title, text, panels=len(panels))


def _readings_caption(found: BlindReadings) -> str:
    """What was read by what, how far it agrees with others, and what the controls show."""
    overall, permuted = found.summary.overall, found.permuted.overall
    second, rule = found.agreement
    false = ", ".join(
        f"{100 * one.false_patterns.estimate:.0f} % of {one.false_patterns.n} ({one.kind})"
        for one in found.controls
    )
    return (
        f"Read by a language model, not by people. {found.found} of the {found.sheets} sheets that "
        f"it read are this scan’s; the others count nowhere. It sees {_patterns_text(overall)}; in "
        f"keys of the model with permuted weights {_patterns_text(permuted)}; on control keys "
        f"patterns in {false or 'none'}. Agreement by Cohen’s kappa: {second.kappa:.2f} with a "
        f"second language model ({second.prefixes:,} prefixes), {rule.kappa:.2f} with the rule "
        f"({rule.prefixes:,})."
    )


def _patterns_text(layer: LayerPatterns) -> str:
    return (
        f"a pattern in {100 * layer.with_pattern.estimate:.0f} % of {layer.keys} keys, "
        f"{layer.patterns_per_key.estimate:.1f} a key, which cover "
        f"{100 * layer.covered.estimate:.0f} % of the triggers"
    )


def _rows(summary: Summary) -> list[style.Row]:
    return [
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


def _bars(data: alt.Chart) -> alt.Chart:
    colours = (style.BLUE, style.PURPLE, style.ORANGE, style.GREY)
    return data.mark_bar().encode(
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


def _patterns_caption(summary: Summary, controls: Sequence[ControlRate]) -> str:
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


FIGURES: tuple[Figure[PatternResults], ...] = (
    Figure(
        "patterns-read-blind",
        lambda result: readings_chart(result.readings) if result.readings else None,
        read="The left panel is Figure 2 by a large language model that read the sheets as a "
        "careful student would, one by one. Keys of the model with permuted weights and random "
        "prefixes were mixed among them, and nothing told it which was which. The middle panel is "
        "the rule on the same keys, the right one the same reader on the permuted keys: what "
        "repeats in triggers without anything learned.",
        paper="Layers 1 to 9 mostly shallow, 10 to 16 mostly semantic; 65 to 80 % covered (figure "
        "2, annotated by people).",
        drawn_if=lambda result: result.readings is not None,
    ),
    Figure(
        "patterns",
        lambda result, beside=(): patterns_chart(result.summary, result.controls, beside),
        read="Each bar is one layer; its parts add up to all triggers of the drawn keys. Orange "
        "growing upwards would mean that upper layers look for meaning. What the annotator finds "
        "on control keys, where there is nothing to find, is in the caption: random prefixes, "
        "prefixes with last tokens as common or of the same lengths as the triggers, and "
        "strangers, one trigger of each of 25 keys of the layer.",
        paper="Layers 1 to 9 mostly shallow, 10 to 16 mostly semantic; 65 to 80 % covered (figure "
        "2, annotated by people).",
        beside=_beside_covered,
    ),
)
