"""The right memory fired and the layer said otherwise: how often, where, and by chance.

A memory is right at a prefix if it is active and its value's top token is the token that follows.
"""

from __future__ import annotations

from ffmem.analyses.inputs.layer_readings import SampleRecord, foreign_gold
from ffmem.analyses.statistics import share_of
from ffmem.analyses.suppression.record import LayerSuppression, Suppression


def measure(reading: SampleRecord) -> Suppression:
    """Count right memories that were overruled, with tokens of other prefixes as control."""
    counts, gold = reading.coefficients, reading.sample.gold
    other = foreign_gold(reading.sample)
    known = (gold >= 0) & (other >= 0)
    right, chance = counts.right[known], counts.foreign[known]
    predictions = reading.predictions[0].feedforward[known]
    overruled = right & (predictions != gold[known, None])
    by_chance = chance & (predictions != other[known, None])
    wrong = reading.output[known] != gold[known]
    sentences = reading.sample.sentences[known]
    return Suppression(
        layers=tuple(
            LayerSuppression(
                layer=layer,
                fired=share_of(right[:, place], sentences),
                overruled=share_of(overruled[:, place], sentences),
                by_chance=share_of(by_chance[:, place], sentences),
            )
            for place, layer in enumerate(reading.layers)
        ),
        lost=share_of(overruled.any(dim=1)[wrong], sentences[wrong]),
        lost_by_chance=share_of(by_chance.any(dim=1)[wrong], sentences[wrong]),
        prefixes=int(known.sum()),
    )
