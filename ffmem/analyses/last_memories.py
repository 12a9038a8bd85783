"""What the strongest memories of the last layer say one by one, where the layer has spoken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.analyses.controls import shuffled
from ffmem.analyses.inputs.layer_readings import SampleReading
from ffmem.analyses.inputs.value_rankings import cell_values, ranks_by_counting
from ffmem.analyses.statistics import Interval, wilson
from ffmem.memories.projection import in_chunks
from ffmem.models.language_model import LanguageModel

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class TokenVotes:
    """One token a prefix under each of its strongest memories, alone.

    `strongest_says` is the share of prefixes where the strongest memory has it on top, `any_says`
    where any of those looked at does. `median_rank` holds quantiles, over the prefixes, of the
    token's median rank among these memories, `best_rank` of its best; 0 is the top.
    """

    strongest_says: Interval
    any_says: Interval
    median_rank: tuple[float, ...]
    best_rank: tuple[float, ...]


@dataclass(frozen=True)
class LastMemories:
    """Do single memories of the last layer say what the layer, or the model, says?

    `layer` is the top token of y, `output` that of o, `shuffled` the layer's token at another
    prefix, which is what frequency alone gives.
    """

    memories: int  # looked at for each prefix, strongest first
    layer: TokenVotes
    output: TokenVotes
    shuffled: TokenVotes


def last_memories(
    model: LanguageModel, reading: SampleReading, generator: torch.Generator
) -> LastMemories:
    """Rank the layer's and the model's token under m v of the strongest memories of each prefix."""
    found = reading.predictions[0]
    layer, output = found.feedforward[:, -1], found.output[:, -1]
    tokens = torch.stack([layer, output, shuffled(layer, generator)])
    ranks = ranks_under_cells(model, reading.strongest, tokens)
    by_layer, by_output, by_chance = (_votes(each) for each in ranks)
    return LastMemories(reading.strongest.shape[1], by_layer, by_output, by_chance)


@torch.no_grad()
def ranks_under_cells(model: LanguageModel, cells: Tensor, tokens: Tensor) -> Tensor:
    """[list, prefix, place]: ranks of tokens [list, prefix] under cells [prefix, place]; -1: none.

    Each cell that occurs is projected once, and every token asked of it is ranked by counting.
    """
    values = cell_values(model.layers[-1], signed=True)
    kinds, token_of = tokens.unique(return_inverse=True)  # [list, prefix] into kinds
    used = cells[cells >= 0].unique()
    table = torch.empty(len(used), len(kinds), dtype=torch.int32)
    for part, scores in in_chunks(model, values[used.to(values.device)], "piece"):
        wanted = kinds.to(scores.device).expand(len(scores), -1)
        table[part] = ranks_by_counting(scores, wanted.contiguous()).int().cpu()
    row = torch.searchsorted(used, cells.clamp(min=0)).clamp(max=max(len(used) - 1, 0))
    if not len(used):
        return torch.full((len(tokens), *cells.shape), -1)
    ranks = table[row[None], token_of[:, :, None]].long()
    return ranks.masked_fill(cells[None] < 0, -1)


def _votes(ranks: Tensor) -> TokenVotes:
    """The summary of ranks [prefix, place]; prefixes at which no memory is at work count not."""
    counted = ranks[(ranks >= 0).any(dim=1)].double()
    known = counted.masked_fill(counted < 0, torch.nan).numpy()
    if not len(known):
        nothing = (float("nan"),) * len(QUANTILES)
        return TokenVotes(wilson(0, 0), wilson(0, 0), nothing, nothing)
    return TokenVotes(
        strongest_says=wilson(int((known[:, 0] == 0).sum()), len(known)),
        any_says=wilson(int((known == 0).any(axis=1).sum()), len(known)),
        median_rank=_quantiles(np.nanmedian(known, axis=1)),
        best_rank=_quantiles(np.nanmin(known, axis=1)),
    )


def _quantiles(numbers: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(q) for q in np.quantile(numbers, QUANTILES))
