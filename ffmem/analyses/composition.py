"""Do the memories of a layer agree with its prediction, or is it made of many? Figures 7, 8.

Suppression asks the other way round: the right memory fired and the layer said otherwise; how
often, where, and by chance. A memory is right at a prefix if it is active and its value's top token
is the token that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.inputs.claim_effects import (
    Effects,
    activity_effects,
    case_effects,
    lowest_layer_effect,
)
from ffmem.analyses.inputs.english import StopWords, punctuation_ids, stop_word_ids
from ffmem.analyses.inputs.layer_readings import (
    CoefficientSummary,
    SampleRecord,
    foreign_gold,
    tops,
)
from ffmem.analyses.statistics import Interval, bootstrap, quantiles, share_of, wilson
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel

SHORT_PREFIX = 5  # a prefix of fewer tokens is short
TargetToken = Literal["y", "gold", "output"]
EXAMPLES = 20  # that are listed


@dataclass(frozen=True)
class LayerActivity:
    """Figure 7 for one layer over the prefixes: shares of its memories, in per cent.

    Each tuple holds quantiles at 5, 25, 50, 75 and 95 %: memories with a coefficient above zero (in
    a gated layer memories whose gate is on, whatever the sign of the coefficient), those above the
    small threshold, those that make up 90 % of sum |m| ||v||, and the participation ratio of the
    same sum.
    """

    layer: int
    memories: int
    active: tuple[float, ...]
    active_eps: tuple[float, ...]
    for_90: tuple[float, ...]
    participation: tuple[float, ...]
    mean_active: float  # memories, not per cent
    median_for_90: float  # memories, not per cent
    median_stronger_than_residual: float  # memories


@dataclass(frozen=True)
class LayerZeroAgreement:
    """Figure 8 for one layer: share of prefixes where no memory's top token is the layer's.

    `all` and `active` say which memories may agree, `_o` compares with the block's output as the
    released code does, `scaled` lets memories speak by m v instead of v: the same as `active` with
    ReLU. `random_values` replaces the values by random directions.
    """

    layer: int
    all: Interval
    active: Interval
    all_o: Interval
    active_o: Interval
    scaled: Interval
    random_values: Interval


@dataclass(frozen=True)
class AgreeingCases:
    """Of the cases (prefix, layer) where some memory agrees: what kind they are, with base rates.

    `target` says which token must be a stop word. Base rates are over all cases.
    """

    target: TargetToken
    stopwords: StopWords
    stop_word: Interval
    stop_word_base: Interval
    punctuation: Interval
    punctuation_base: Interval
    short: Interval
    short_base: Interval


@dataclass(frozen=True)
class Composition:
    """Section 5.1 of the paper on one sample; `effects` are what its claims rest on."""

    activity: tuple[LayerActivity, ...]
    zero_agreement: tuple[LayerZeroAgreement, ...]
    agreeing: tuple[AgreeingCases, ...]
    short_by_layer: tuple[Interval, ...]
    stop_word_by_layer: tuple[Interval, ...]
    prefixes: int
    seed: int
    gated: bool = False  # then active memories are those whose gate is on
    effects: Effects = field(default_factory=dict)


def composition(
    model: LanguageModel, reading: SampleRecord, generator: torch.Generator
) -> Composition:
    """How many memories fire, whether any of them says what the layer says, and when."""
    stops = stop_word_ids(model, reading.sample.tokens)
    agree = reading.coefficients.matches_y > 0
    top = reading.predictions[0].feedforward
    short = (reading.sample.positions < SHORT_PREFIX)[:, None].expand_as(agree)
    return Composition(
        activity=activity(reading),
        zero_agreement=tuple(zero_agreement(model, reading, generator)),
        agreeing=tuple(agreeing_cases(model, reading)),
        short_by_layer=_by_layer(short, agree),
        stop_word_by_layer=_by_layer(stops[top], agree),
        prefixes=len(reading.sample),
        seed=reading.sample.seed,
        gated=model.gated,
        effects=composition_effects(reading, stops[top]),
    )


def composition_effects(reading: SampleRecord, stop_word: Tensor) -> Effects:
    """Differences by prefix; `stop_word` [prefix, layer] says whether top(y) is one."""
    found = reading.coefficients
    agree = found.matches_y > 0
    short = (reading.sample.positions < SHORT_PREFIX)[:, None].expand_as(agree)
    return {
        **activity_effects(found.active.double() / torch.tensor(reading.memories)),
        "composed": lowest_layer_effect((~agree).double()),
        **case_effects(agree, {"stop_words": stop_word, "short_prefixes": short}),
    }


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
                median_for_90=float(found.for_90[:, place].double().median()),
                median_stronger_than_residual=float(
                    found.stronger_than_residual[:, place].double().median()
                ),
            )
        )
    return tuple(rows)


def zero_agreement(
    model: LanguageModel, reading: SampleRecord, generator: torch.Generator
) -> Sequence[LayerZeroAgreement]:
    """Figure 8, with its variants and a control of random directions."""
    found = reading.coefficients
    rows = []
    for place, layer in enumerate(reading.layers):
        predicted = reading.predictions[0].feedforward[:, place]
        known = random_tops(model, layer, generator)
        rows.append(
            LayerZeroAgreement(
                layer=layer,
                all=_none(found.matches_y[:, place] > 0),
                active=_none(found.matches_y_active[:, place] > 0),
                all_o=_none(found.matches_o[:, place] > 0),
                active_o=_none(found.matches_o_active[:, place] > 0),
                scaled=_none(found.matches_y_scaled[:, place] > 0),
                random_values=_none(torch.isin(predicted, known)),
            )
        )
    return rows


def random_tops(model: LanguageModel, layer: int, generator: torch.Generator) -> Tensor:
    """The top tokens of as many random directions as the layer has values."""
    values = value_vectors(model.layer(layer))
    if values.device.type != "cpu":  # where drawing so many takes longer than all the rest
        seed = int(torch.randint(2**62, (), generator=generator))
        generator = torch.Generator(values.device).manual_seed(seed)
    random = torch.randn(values.shape, generator=generator, device=values.device)
    return tops(model, random.to(values.dtype)).cpu()


def agreeing_cases(model: LanguageModel, reading: SampleRecord) -> list[AgreeingCases]:
    """The paper's two percentages for every reading of them, each beside its base rate."""
    agree = reading.coefficients.matches_y > 0
    gold = reading.sample.gold[:, None].expand_as(agree)
    targets: dict[TargetToken, Tensor] = {
        "y": reading.predictions[0].feedforward,
        "gold": gold,
        "output": reading.output[:, None].expand_as(agree),
    }
    marks = punctuation_ids(model)
    short = (reading.sample.positions < SHORT_PREFIX)[:, None].expand_as(agree)
    rows = []
    lists: tuple[StopWords, ...] = ("function_words", "top100")
    for stopwords in lists:
        stops = stop_word_ids(model, reading.sample.tokens, stopwords)
        for name, tokens in targets.items():
            known = tokens >= 0
            chosen = agree & known
            stop, mark = stops[tokens.clamp(min=0)], marks[tokens.clamp(min=0)]
            rows.append(
                AgreeingCases(
                    target=name,
                    stopwords=stopwords,
                    stop_word=share_of(stop[chosen]),
                    stop_word_base=share_of(stop[known]),
                    punctuation=share_of(mark[chosen]),
                    punctuation_base=share_of(mark[known]),
                    short=share_of(short[chosen]),
                    short_base=share_of(short[known]),
                )
            )
    return rows


def _by_layer(what: Tensor, agree: Tensor) -> tuple[Interval, ...]:
    return tuple(share_of(what[:, place][agree[:, place]]) for place in range(agree.shape[1]))


def _none(agrees: Tensor) -> Interval:
    return wilson(int((~agrees).sum()), len(agrees))


@dataclass(frozen=True)
class LayerSuppression:
    """One layer over the prefixes that a token follows.

    `fired`: a right memory is active. `overruled`: one is, and the layer's top token is another.
    `by_chance`: the same as `overruled` with the token that follows another prefix as the right
    one. `difference` is of the two, prefix by prefix, with an interval that resamples prefixes.
    """

    layer: int
    fired: Interval
    overruled: Interval
    by_chance: Interval
    difference: Interval


@dataclass(frozen=True)
class SuppressionCase:
    """A right memory that its layer overruled, at a prefix where the model said another token."""

    memory: Address
    prefix: str
    right: str
    layer_said: str
    model_said: str


@dataclass(frozen=True)
class Suppression:
    """All layers; `lost` is the share of the model's wrong answers with a right memory somewhere.

    `lost_by_chance` is the same for tokens that follow other prefixes. Examples have the strongest
    right memory of the last layer that has one, and are in the order of the sample.
    """

    layers: tuple[LayerSuppression, ...]
    lost: Interval
    lost_by_chance: Interval
    examples: tuple[SuppressionCase, ...]
    prefixes: int


def suppression(
    model: LanguageModel, reading: SampleRecord, generator: torch.Generator
) -> Suppression:
    """Count right memories that were overruled, with tokens of other prefixes as control."""
    counts, gold = reading.coefficients, reading.sample.gold
    other = foreign_gold(gold)
    known = (gold >= 0) & (other >= 0)
    right, chance = (tokens[known] >= 0 for tokens in (counts.right_memory, counts.foreign_memory))
    predictions = reading.predictions[0].feedforward[known]
    overruled = right & (predictions != gold[known, None])
    by_chance = chance & (predictions != other[known, None])
    wrong = reading.output[known] != gold[known]
    return Suppression(
        layers=tuple(
            LayerSuppression(
                layer=layer,
                fired=share_of(right[:, place]),
                overruled=share_of(overruled[:, place]),
                by_chance=share_of(by_chance[:, place]),
                difference=bootstrap(
                    overruled[:, place].double() - by_chance[:, place].double(), generator
                ),
            )
            for place, layer in enumerate(reading.layers)
        ),
        lost=share_of(overruled.any(dim=1)[wrong]),
        lost_by_chance=share_of(by_chance.any(dim=1)[wrong]),
        examples=tuple(_examples(model, reading)),
        prefixes=int(known.sum()),
    )


def _examples(model: LanguageModel, reading: SampleRecord) -> list[SuppressionCase]:
    sample, predictions = reading.sample, reading.predictions[0].feedforward
    right = reading.coefficients.right_memory
    overruled = (right >= 0) & (predictions != sample.gold[:, None]) & (sample.gold[:, None] >= 0)
    lost = overruled.any(dim=1) & (reading.output != sample.gold)
    found = []
    for row in lost.nonzero().flatten().tolist()[:EXAMPLES]:
        place = int(overruled[row].nonzero().flatten()[-1])
        found.append(
            SuppressionCase(
                memory=model.layer(reading.layers[place]).parts.address(
                    reading.layers[place], int(right[row, place])
                ),
                prefix=sample.prefix(row),
                right=model.token_text(int(sample.gold[row])),
                layer_said=model.token_text(int(predictions[row, place])),
                model_said=model.token_text(int(reading.output[row])),
            )
        )
    return found
