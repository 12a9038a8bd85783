"""Is the normalisation the only difference between a feed-forward layer and a neural memory?"""

from __future__ import annotations

import torch
from torch import Tensor

from ffmem.analyses.inputs.layer_readings import SampleRecord
from ffmem.analyses.normalisation.record import LayerNormalisation, Normalisation
from ffmem.analyses.statistics import bootstrap, quantiles, share_of


def measure(reading: SampleRecord, generator: torch.Generator) -> Normalisation:
    """Every layer of a sample beside the same layer with a softmax over its keys."""
    found, layers = reading.normalised, []
    for place, number in enumerate(reading.layers):
        cosine = _without_nan(found.cosine[:, place])
        if not len(cosine):
            continue
        layers.append(
            LayerNormalisation(
                layer=number,
                memories=reading.memories[place],
                effective=quantiles(found.effective[:, place].double()),
                own_effective=quantiles(reading.coefficients.participation[:, place].double()),
                cosine=bootstrap(cosine, generator),
                shuffled_cosine=bootstrap(_without_nan(found.foreign_cosine[:, place]), generator),
                same_top=share_of(_without_nan(found.same_top[:, place]) > 0),
                shuffled_same_top=share_of(_without_nan(found.foreign_same_top[:, place]) > 0),
                length=quantiles(found.length[:, place].double()),
            )
        )
    left_out = len(reading.layers) - len(layers)
    return Normalisation(tuple(layers), left_out, len(reading.sample), reading.sample.seed)


def _without_nan(numbers: Tensor) -> Tensor:
    """Those that were measured."""
    return numbers[~numbers.isnan()].double()
