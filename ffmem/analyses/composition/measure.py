"""Do the memories of a layer agree with its prediction, or is it made of many? Figures 7, 8."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ffmem.analyses.composition.record import (
    ActivityEffects,
    AgreeingCases,
    CaseEffects,
    Composition,
    CompositionEffects,
    LayerActivity,
    LayerZeroAgreement,
)
from ffmem.analyses.inputs.effects import lowest_layer_effect, with_count
from ffmem.analyses.inputs.english import punctuation_ids, stop_word_ids
from ffmem.analyses.inputs.layer_readings import CoefficientSummary, SampleRecord, tops
from ffmem.analyses.statistics import (
    Interval,
    Resamples,
    place_of,
    quantiles,
    resample,
    share_of,
)
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel

SHORT_PREFIX = 5  # a prefix of fewer tokens is short


def measure(model: LanguageModel, reading: SampleRecord, generator: torch.Generator) -> Composition:
    """How many memories fire, whether any of them says what the layer says, and when."""
    stops = stop_word_ids(model)
    top = reading.predictions[0].feedforward
    return Composition(
        activity=activity(reading),
        zero_agreement=tuple(zero_agreement(model, reading, generator)),
        agreeing=_agreeing_cases(model, reading, stops),
        prefixes=len(reading.sample),
        sentences=reading.sample.count,
        gated=model.gated,
        effects=_composition_effects(reading, stops[top]),
    )


def _composition_effects(reading: SampleRecord, stop_word: Tensor) -> CompositionEffects:
    """Differences by sentence; `stop_word` [prefix, layer] says whether top(y) is one."""
    found, sentences = reading.coefficients, reading.sample.sentences
    agree = found.matches_y > 0
    short = (reading.sample.positions < SHORT_PREFIX)[:, None].expand_as(agree)
    return CompositionEffects(
        activity_effects(found.active.double() / torch.tensor(reading.memories), sentences),
        lowest_layer_effect((~agree).double(), sentences),
        case_effects(agree, stop_word, short, sentences),
    )


def activity(reading: SampleRecord) -> tuple[LayerActivity, ...]:
    """Figure 7: how much of each layer is at work."""
    found: CoefficientSummary = reading.coefficients
    rows = []
    for place, (layer, memories) in enumerate(zip(reading.layers, reading.memories, strict=True)):

        def share(counts: Tensor, at: int = place, of: int = memories) -> tuple[float, ...]:
            return quantiles(100 * counts[:, at].double().numpy() / of)

        rows.append(
            LayerActivity(
                layer=layer,
                memories=memories,
                active=share(found.active),
                active_eps=share(found.active_eps),
                for_90=share(found.for_90),
                participation=share(found.participation),
                mean_active=float(found.active[:, place].double().mean()),
            )
        )
    return tuple(rows)


def zero_agreement(
    model: LanguageModel, reading: SampleRecord, generator: torch.Generator
) -> Sequence[LayerZeroAgreement]:
    """Figure 8, with its variants and a control of random directions."""
    found = reading.coefficients
    rows = []

    def none(agrees: Tensor) -> Interval:
        return share_of(~agrees, reading.sample.sentences)

    for place, layer in enumerate(reading.layers):
        predicted = reading.predictions[0].feedforward[:, place]
        known = _random_tops(model, layer, generator)
        rows.append(
            LayerZeroAgreement(
                layer=layer,
                all=none(found.matches_y[:, place] > 0),
                active=none(found.matches_y_active[:, place] > 0),
                all_o=none(found.matches_o[:, place] > 0),
                random_values=none(torch.isin(predicted, known)),
            )
        )
    return rows


def _random_tops(model: LanguageModel, layer: int, generator: torch.Generator) -> Tensor:
    """The top tokens of as many random directions as the layer has values."""
    values = value_vectors(model.layer(layer))
    if values.device.type != "cpu":  # where drawing so many takes longer than all the rest
        seed = int(torch.randint(2**62, (), generator=generator))
        generator = torch.Generator(values.device).manual_seed(seed)
    random = torch.randn(values.shape, generator=generator, device=values.device)
    return tops(model, random.to(values.dtype)).cpu()


def _agreeing_cases(model: LanguageModel, reading: SampleRecord, stops: Tensor) -> AgreeingCases:
    """The paper's two percentages, each beside its base rate; `stops` [token] are stop words."""
    agree = reading.coefficients.matches_y > 0
    tokens = reading.predictions[0].feedforward
    short = (reading.sample.positions < SHORT_PREFIX)[:, None].expand_as(agree)
    sentences = reading.sample.sentences[:, None].expand_as(agree)
    every = torch.ones_like(agree)

    def share(flags: Tensor, among: Tensor) -> Interval:
        return share_of(flags[among], sentences[among])

    stop, mark = stops[tokens], punctuation_ids(model)[tokens]
    return AgreeingCases(
        stop_word=share(stop, agree),
        stop_word_base=share(stop, every),
        punctuation=share(mark, agree),
        punctuation_base=share(mark, every),
        short=share(short, agree),
        short_base=share(short, every),
    )


DIP = (9, 10, 11)  # of the paper's layers, where it has its dip
ACTIVE = (0.1, 0.5)  # shares of a layer's memories that the paper finds active
DIP_LAYERS = 2  # layers before and after a dip that must fall to it and rise from it


def activity_effects(active: Tensor, sentences: Tensor) -> ActivityEffects:
    """From the share of each layer's memories that are active, [prefix, layer]."""
    low, high = ACTIVE

    def in_range(sums: Tensor) -> Tensor:
        means = sums[..., :-1] / sums[..., -1:]
        return torch.minimum(means.min(dim=-1).values - low, high - means.max(dim=-1).values)

    def dip(sums: Tensor) -> Tensor:
        return dip_depth(sums[..., :-1] / sums[..., -1:])

    drawn = Resamples(with_count(active, units=sentences))
    return ActivityEffects(drawn.interval(in_range), drawn.interval(dip))


def dip_depth(curve: Tensor) -> Tensor:
    """How far a curve [..., layer] dips where the paper's does; below zero where it does not.

    A dip lies lowest of all layers after the first, the two layers before it fall to it and the
    two after it rise from it. The depth is the least of these differences. NaN where there are
    too few layers.
    """
    layers = curve.shape[-1]
    depths = []
    for place in sorted({place_of(layer, layers) for layer in DIP}):
        if place - DIP_LAYERS < 1 or place + DIP_LAYERS >= layers:  # layer 1 is apart
            continue
        before = (
            curve[..., place - DIP_LAYERS : place] - curve[..., place - DIP_LAYERS + 1 : place + 1]
        )
        after = (
            curve[..., place + 1 : place + DIP_LAYERS + 1] - curve[..., place : place + DIP_LAYERS]
        )
        others = torch.cat([curve[..., 1:place], curve[..., place + 1 :]], dim=-1)
        parts = (before, after, others - curve[..., place : place + 1])
        depths.append(torch.cat(parts, dim=-1).min(dim=-1).values)
    if not depths:
        return torch.full(curve.shape[:-1], torch.nan, dtype=curve.dtype)
    return torch.stack(depths).max(dim=0).values


def case_effects(agree: Tensor, stop_word: Tensor, short: Tensor, sentences: Tensor) -> CaseEffects:
    """How much more often a case is of a kind where a memory agrees, within layers.

    All are [prefix, layer]. Layers count by how many cases agree in them, so that layers which
    differ in both make no effect of their own.
    """

    def statistic(sums: Tensor) -> Tensor:
        count = sums[..., -1:]
        both, agreeing, kind = sums[..., :-1].unflatten(-1, (3, -1)).unbind(-2)
        return (both - agreeing * kind / count).sum(dim=-1) / agreeing.sum(dim=-1)

    def more_often(kind: Tensor) -> Interval:
        return resample(with_count(agree & kind, agree, kind, units=sentences), statistic)

    return CaseEffects(more_often(stop_word), more_often(short))
