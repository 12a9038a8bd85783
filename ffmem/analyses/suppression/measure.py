"""The right memory fired and the layer said otherwise: how often, where, and by chance.

A memory is right at a prefix if it is active and its value's top token is the token that follows.
"""

from __future__ import annotations

import torch

from ffmem.analyses.inputs.layer_readings import SampleRecord, foreign_gold
from ffmem.analyses.statistics import bootstrap, per_unit, share_of
from ffmem.analyses.suppression.record import LayerSuppression, Suppression, SuppressionCase
from ffmem.models.language_model import LanguageModel

EXAMPLES = 20  # that are listed


def measure(model: LanguageModel, reading: SampleRecord, generator: torch.Generator) -> Suppression:
    """Count right memories that were overruled, with tokens of other prefixes as control."""
    counts, gold = reading.coefficients, reading.sample.gold
    other = foreign_gold(reading.sample)
    known = (gold >= 0) & (other >= 0)
    right, chance = (tokens[known] >= 0 for tokens in (counts.right_memory, counts.foreign_memory))
    predictions = reading.predictions[0].feedforward[known]
    overruled = right & (predictions != gold[known, None])
    by_chance = chance & (predictions != other[known, None])
    wrong = reading.output[known] != gold[known]
    sentences = reading.sample.sentences[known]
    more = overruled.double() - by_chance.double()
    return Suppression(
        layers=tuple(
            LayerSuppression(
                layer=layer,
                fired=share_of(right[:, place], sentences),
                overruled=share_of(overruled[:, place], sentences),
                by_chance=share_of(by_chance[:, place], sentences),
                difference=bootstrap(per_unit(more[:, place], sentences), generator),
            )
            for place, layer in enumerate(reading.layers)
        ),
        lost=share_of(overruled.any(dim=1)[wrong], sentences[wrong]),
        lost_by_chance=share_of(by_chance.any(dim=1)[wrong], sentences[wrong]),
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
