"""Is the normalisation the only difference between a feed-forward layer and a neural memory?"""

from __future__ import annotations

import torch
from torch import Tensor

from ffmem.analyses.inputs.layer_readings import SampleRecord
from ffmem.analyses.normalisation.record import LayerNormalisation, Normalisation
from ffmem.analyses.statistics import Interval, bootstrap, per_unit, quantiles, share_of


def measure(reading: SampleRecord, generator: torch.Generator) -> Normalisation:
    """Every layer of a sample beside the same layer with a softmax over its keys."""
    found, layers, sentences = reading.normalised, [], reading.sample.sentences

    def mean(numbers: Tensor) -> Interval:
        known = ~numbers.isnan()
        return bootstrap(per_unit(numbers[known].double(), sentences[known]), generator)

    def share(numbers: Tensor) -> Interval:
        known = ~numbers.isnan()
        return share_of(numbers[known] > 0, sentences[known])

    for place, number in enumerate(reading.layers):
        if found.cosine[:, place].isnan().all():
            continue
        layers.append(
            LayerNormalisation(
                layer=number,
                memories=reading.memories[place],
                effective=quantiles(found.effective[:, place].double()),
                own_effective=quantiles(reading.coefficients.participation[:, place].double()),
                cosine=mean(found.cosine[:, place]),
                shuffled_cosine=mean(found.foreign_cosine[:, place]),
                same_top=share(found.same_top[:, place]),
                shuffled_same_top=share(found.foreign_same_top[:, place]),
                length=quantiles(found.length[:, place].double()),
            )
        )
    left_out = len(reading.layers) - len(layers)
    return Normalisation(tuple(layers), left_out, len(reading.sample))
