"""The right memory fired and the layer said otherwise: how often, where, and by chance.

A memory is right at a prefix if it is active and its value's top token is the token that follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ffmem.address import Address
from ffmem.analyses.inputs.layer_readings import SampleRecord, foreign_gold
from ffmem.analyses.statistics import Interval, bootstrap, wilson
from ffmem.models.language_model import LanguageModel

EXAMPLES = 20  # that are listed


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
    said = reading.predictions[0].feedforward[known]
    overruled = right & (said != gold[known, None])
    by_chance = chance & (said != other[known, None])
    wrong = reading.output[known] != gold[known]
    return Suppression(
        layers=tuple(
            LayerSuppression(
                layer=layer,
                fired=_share(right[:, place]),
                overruled=_share(overruled[:, place]),
                by_chance=_share(by_chance[:, place]),
                difference=bootstrap(
                    overruled[:, place].double() - by_chance[:, place].double(), generator
                ),
            )
            for place, layer in enumerate(reading.layers)
        ),
        lost=_share(overruled.any(dim=1)[wrong]),
        lost_by_chance=_share(by_chance.any(dim=1)[wrong]),
        examples=tuple(_examples(model, reading)),
        prefixes=int(known.sum()),
    )


def _share(flags: torch.Tensor) -> Interval:
    return wilson(int(flags.sum()), flags.numel())


def _examples(model: LanguageModel, reading: SampleRecord) -> list[SuppressionCase]:
    sample, said = reading.sample, reading.predictions[0].feedforward
    right = reading.coefficients.right_memory
    overruled = (right >= 0) & (said != sample.gold[:, None]) & (sample.gold[:, None] >= 0)
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
                layer_said=model.token_text(int(said[row, place])),
                model_said=model.token_text(int(reading.output[row])),
            )
        )
    return found
