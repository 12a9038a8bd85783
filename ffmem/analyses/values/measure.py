"""Do values predict the token that follows their keys' triggers? Figures 4, 5, 6 and Table 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.analysis import PAPER_SIZES
from ffmem.analyses.controls import agreement_of_shuffles, unigram_match
from ffmem.analyses.inputs.effects import layers_by_depth, mean_effect, share_effect, with_count
from ffmem.analyses.inputs.value_rankings import LayerValueRankings
from ffmem.analyses.statistics import (
    SHARE,
    Interval,
    Resamples,
    bootstrap,
    lower_and_upper,
    quantiles,
    resample,
    wilson,
)
from ffmem.analyses.values.predictive import predictive_values
from ffmem.analyses.values.record import (
    AgreementEffects,
    Bin,
    CertaintyEffects,
    LayerAgreement,
    LayerMass,
    LayerRanks,
    RankEffects,
    ValueEffects,
    Values,
)
from ffmem.models.effective_weights import packed_numbers
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore


def measure(
    model: LanguageModel,
    store: ScanStore,
    read: Sequence[LayerValueRankings],
    generator: torch.Generator,
    tested: int = PAPER_SIZES.tested_triggers,
) -> Values:
    """All results of section 4 from values that have been read.

    Tests rest on the `tested` strongest triggers of each key, figures on the strongest or on all.
    """
    text = torch.from_numpy(np.array(store.sentences.tokens, dtype=np.int64))
    rows = tuple(row for part in read for row in agreement(model, part, text, generator))
    return Values(
        agreement=rows,
        ranks=tuple(row for part in read for row in ranks(part, model.vocab_size)),
        equal_width=_bins_of(read, _equal_width_edges(_concatenate(read, "probability"))),
        quantile_bins=_bins_of(read, _quantile_edges(_concatenate(read, "probability"))),
        predictive=predictive_values(model, store, read, generator),
        vocabulary=model.vocab_size,
        counts=exclusions(read, model.unk),
        mass=tuple(row for part in read for row in _next_token_mass(part, generator)),
        effects=_value_effects(read, [row for row in rows if row.cells in ("", "both")], tested),
        feed_forward_share=feed_forward_share(model),
    )


def _value_effects(
    read: Sequence[LayerValueRankings], chance: Sequence[LayerAgreement], tested: int
) -> ValueEffects:
    """Differences by memory; `chance` has the row of each layer's cells of all signs."""
    layers = [_cell_hits(part, row, tested) for part, row in zip(read, chance, strict=True)]
    edges = _quantile_edges(_concatenate(read, "probability"))
    place = torch.bucketize(_concatenate(read, "probability").double(), edges[1:-1], right=True)
    known = torch.cat([layer.known[:, 0] for layer in layers])
    hit = torch.cat([layer.hit[:, 0] for layer in layers])
    shuffled = torch.cat([part.top == part.shuffled_next for part in read])
    return ValueEffects(
        agreement_effects(layers),
        rank_effects(layers),
        certainty_effects(place[known], len(edges) - 1, hit[known], shuffled[known]),
    )


def _cell_hits(part: LayerValueRankings, chance: LayerAgreement, tested: int) -> CellHits:
    """What every cell of a layer says of its strongest triggers; two signs are one memory."""
    following, count = part.triggers.next[:, :tested], len(part.top)
    known, top = following >= 0, part.top[:, None]
    memories = count // 2 if part.cells.signed else count
    return CellHits(
        memory=torch.arange(count) % max(memories, 1),
        known=known,
        hit=(top == following) & known,
        last=top == part.triggers.last[:, :tested],
        rank=part.ranks[:, :tested],
        shuffled_rank=part.shuffled_ranks,
        shuffled=chance.shuffled.estimate * count / max(int(known[:, 0].sum()), 1),
        unigram=chance.unigram,
    )


def feed_forward_share(model: LanguageModel) -> float:
    """Numbers in feed-forward layers over those in all matrices of their blocks."""
    inside = sum(part.shape.numel() for layer in model.layers for part in layer.maps)
    blocks = {id(layer.block): layer.block for layer in model.layers}.values()
    matrices = [one.numel() for block in blocks for one in block.parameters() if one.dim() > 1]
    return inside / (sum(matrices) + sum(map(packed_numbers, blocks)))


def _next_token_mass(part: LayerValueRankings, generator: torch.Generator) -> list[LayerMass]:
    """What values give to the next tokens of all triggers, for a layer and each of its signs."""
    rows = []
    for name, cells in part.groups():
        own, other = part.mass[cells].double(), part.shuffled_mass[cells].double()
        known = ~(own.isnan() | other.isnan())
        own, other = own[known], other[known]
        rows.append(
            LayerMass(
                layer=part.layer,
                cells=name,
                own=bootstrap(own, generator),
                shuffled=bootstrap(other, generator),
                difference=bootstrap(own - other, generator),
                greater=wilson(int((own > other).sum()), len(own)),
            )
        )
    return rows


def agreement(
    model: LanguageModel, part: LayerValueRankings, text: Tensor, generator: torch.Generator
) -> list[LayerAgreement]:
    """Figure 4 for one layer, and for each sign of a gated one."""
    rows = []
    for name, cells in part.groups():
        top, following = part.top[cells], part.triggers.next[cells, 0]
        last = part.triggers.last[cells, 0]
        hits, count = int((top == following).sum()), len(top)
        rows.append(
            LayerAgreement(
                layer=part.layer,
                cells=name,
                all=wilson(hits, count),
                filled=wilson(hits, int((following >= 0).sum())),
                released=wilson(int((top == last).sum()), count),
                shuffled=agreement_of_shuffles(top, following, generator),
                unigram=unigram_match(top, text, model.vocab_size),
            )
        )
    return rows


def ranks(part: LayerValueRankings, words: int) -> list[LayerRanks]:
    """Figure 5 for one layer, and for each sign of a gated one."""
    rows = []
    for name, cells in part.groups():
        own = part.ranks[cells, 0]
        other = part.shuffled_ranks[cells]
        own, other = (found[found >= 0].double() for found in (own, other))
        middle = quantiles(own)
        rows.append(
            LayerRanks(
                layer=part.layer,
                cells=name,
                n=len(own),
                quantiles=middle,
                median_share=middle[2] / words,
                under=_under(own),
                mrr=float((1 / (own + 1)).mean()),
                shuffled_quantiles=quantiles(other),
                shuffled_mrr=float((1 / (other + 1)).mean()),
            )
        )
    return rows


def _under(numbers: Tensor) -> tuple[float, float, float]:
    ten, hundred, thousand = (float((numbers < bar).double().mean()) for bar in (10, 100, 1000))
    return ten, hundred, thousand


def _equal_width_edges(probability: Tensor, bins: int = 10) -> Tensor:
    """The paper's bins: equally wide, from the smallest maximal probability to the largest."""
    return torch.linspace(float(probability.min()), float(probability.max()), bins + 1).double()


def _quantile_edges(probability: Tensor, bins: int = 20) -> Tensor:
    """Bins with equally many cells each, which can be compared between models."""
    return torch.from_numpy(np.quantile(probability.double(), np.linspace(0, 1, bins + 1)))


def _bins_of(read: Sequence[LayerValueRankings], edges: Tensor) -> tuple[Bin, ...]:
    """Figure 6: agreement of all layers' cells by their value's maximal probability."""
    probability = _concatenate(read, "probability").double()
    agree = torch.cat([part.top == part.triggers.next[:, 0] for part in read])
    chance = torch.cat([part.top == part.shuffled_next for part in read])
    which = torch.bucketize(probability, edges[1:-1], right=True)
    rows = []
    for i in range(len(edges) - 1):
        inside = which == i
        count = int(inside.sum())
        rows.append(
            Bin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                agreement=wilson(int(agree[inside].sum()), count),
                shuffled=wilson(int(chance[inside].sum()), count),
            )
        )
    return tuple(rows)


def _concatenate(read: Sequence[LayerValueRankings], name: str) -> Tensor:
    return torch.cat([getattr(part, name) for part in read])


def exclusions(read: Sequence[LayerValueRankings], unknown: int | None = None) -> dict[str, int]:
    """What the figures leave out or count as disagreement, over all layers.

    `unknown` is the token that stands for words outside the vocabulary; it counts as a token like
    any other, so it is said how often it does.
    """
    known = {} if unknown is None else _unknown(read, unknown)
    return known | {
        "cells": sum(len(part.top) for part in read),
        "dead cells": sum(int((~part.triggers.filled[:, 0]).sum()) for part in read),
        "unfilled slots": sum(int((~part.triggers.filled).sum()) for part in read),
        "top triggers without a next token": sum(
            int((part.triggers.filled[:, 0] & (part.triggers.next[:, 0] < 0)).sum())
            for part in read
        ),
    }


def _unknown(read: Sequence[LayerValueRankings], unknown: int) -> dict[str, int]:
    """How often the unknown token follows a top trigger, and how often a value promotes it."""
    return {
        "top triggers followed by the unknown token": sum(
            int((part.triggers.next[:, 0] == unknown).sum()) for part in read
        ),
        "values with the unknown token on top": sum(
            int((part.top == unknown).sum()) for part in read
        ),
    }


@dataclass(frozen=True)
class CellHits:
    """One layer's cells: does the value's top token follow the strongest triggers?

    `hit`, `known`, `last` and `rank` are [cell, trigger], strongest first, the others [cell].
    `known` triggers are followed by a token; the others count nowhere. `last` says whether the top
    token is the one just read. `shuffled` and `unigram` are what chance gives in this layer.
    `memory` is the memory of each cell: the unit that is resampled.
    """

    memory: Tensor
    known: Tensor
    hit: Tensor
    last: Tensor
    rank: Tensor
    shuffled_rank: Tensor
    shuffled: float
    unigram: float

    def tallies(self) -> Tensor:
        """[memory, number]: triggers hit, known, by shuffles, by frequency, last token.

        Then hit and known of the strongest trigger alone.
        """
        known = self.known.double()
        hit, count = (self.hit * known).sum(dim=1), known.sum(dim=1)
        last = (self.last * known).sum(dim=1)
        columns = (hit, count, self.shuffled * count, self.unigram * count, last)
        table = torch.stack([*columns, self.hit[:, 0] * known[:, 0], known[:, 0]], dim=1)
        size = int(self.memory.max()) + 1 if len(self.memory) else 0
        return torch.zeros(size, COLUMNS, dtype=torch.float64).index_add_(0, self.memory, table)

    def powers(self) -> tuple[Tensor, Tensor]:
        """The mean rank in powers of two of cells [cell] with a token, and which those are."""
        known = self.known.double()
        ranks = _in_powers(self.rank) * known
        some = known[:, 0] > 0
        return _round_to_tenths(ranks.sum(dim=1) / known.sum(dim=1).clamp(min=1)), some


COLUMNS = 7


def agreement_effects(layers: Sequence[CellHits]) -> AgreementEffects:
    """Figure 4: cells without a trigger are out of every denominator.

    The strongest trigger alone is the paper's number; several of a key make the test sharper.
    """
    table = layers_by_depth([layer.tallies() for layer in layers])
    lower, upper = table[:, :COLUMNS], Resamples(table[:, COLUMNS:])

    def above(column: int) -> Interval:
        return upper.interval(lambda sums: (sums[..., 0] - sums[..., column]) / sums[..., 1])

    return AgreementEffects(
        strongest_upper=share_effect(table[:, COLUMNS + 5 :]),
        strongest_lower=share_effect(lower[:, 5:]),
        upper=upper.interval(lambda sums: sums[..., 0] / sums[..., 1], bounds=SHARE),
        lower=share_effect(lower),
        rise=resample(
            table,
            lambda sums: sums[..., COLUMNS] / sums[..., COLUMNS + 1] - sums[..., 0] / sums[..., 1],
        ),
        above_shuffled=above(2),
        above_unigram=above(3),
        above_last_token=above(4),
    )


def rank_effects(layers: Sequence[CellHits]) -> RankEffects:
    """Figure 5 in powers of two, so that ten places count more near the top."""
    found = [one.powers() for one in layers]
    table = layers_by_depth([with_count(ranks[known]) for ranks, known in found])
    better = []
    for one, (ranks, known) in lower_and_upper(list(zip(layers, found, strict=True)))[1]:
        both = known & (one.shuffled_rank >= 0)
        better.append(_in_powers(one.shuffled_rank[both]) - ranks[both])
    return RankEffects(
        rise=resample(
            table, lambda sums: sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
        ),
        above_shuffled=mean_effect(_round_to_tenths(torch.cat(better))),
    )


def _in_powers(ranks: Tensor) -> Tensor:
    """Ranks from 0 in powers of two; one below zero is none, and counts as the first."""
    return (ranks.double().clamp(min=0) + 1).log2()


def _round_to_tenths(numbers: Tensor) -> Tensor:
    """Few different numbers, so that resampling a million of them is quick."""
    return (numbers * 10).round() / 10


def certainty_effects(place: Tensor, bins: int, hit: Tensor, shuffled: Tensor) -> CertaintyEffects:
    """Figure 6 from cells with a next token, all [cell]: `place` is the bin of each."""
    first, last = (place == 0).double(), (place == bins - 1).double()
    table = torch.stack([hit * first, first, hit * last, last, shuffled * last], dim=1)
    return CertaintyEffects(
        rise=resample(
            table, lambda sums: sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1]
        ),
        above_shuffled=resample(
            table[:, 2:], lambda sums: (sums[..., 0] - sums[..., 2]) / sums[..., 1]
        ),
    )
