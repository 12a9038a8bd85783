"""Effects that claims rest on: differences whose intervals resample whole prefixes or whole keys.

Each function takes what was measured on every prefix or key and gives the effects by name. An
effect is larger, the more it is as the paper says; the claim says which bar it must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ffmem.analyses.inputs.layer_readings import UNKNOWN, VETO, Predictions
from ffmem.analyses.predictive_values import UPPER
from ffmem.analyses.statistics import SHARE, Interval, Resamples, resample

T = TypeVar("T")
Effects = dict[str, Interval]
PAPER_LAYERS = 16
DIP = (9, 10, 11)  # of the paper's layers, where it has its dip
SEMANTIC = 10  # of the paper's layers, where semantic patterns take over
BOTTOM_LAYERS = 5  # of the paper's layers: its bottom few
ACTIVE = (0.1, 0.5)  # shares of a layer's memories that the paper finds active
DIP_LAYERS = 2  # layers before and after a dip that must fall to it and rise from it


def lower_and_upper(layers: Sequence[T]) -> tuple[list[T], list[T]]:
    """The paper's layers 1 to 10 and 11 to 16, by their share of the depth."""
    first = len(layers) - max(1, round(UPPER * len(layers)))
    return list(layers[:first]) or list(layers[:1]), list(layers[first:])


def place_of(layer: int, layers: int) -> int:
    """The layer, from 0, of a model with `layers` layers at the depth of one of the paper's 16."""
    return min(layers - 1, max(0, round(layer * layers / PAPER_LAYERS) - 1))


def with_count(*columns: Tensor) -> Tensor:
    """Columns [unit] or [unit, number] side by side, and a last one of ones that counts units."""
    table = torch.cat([as_columns(one) for one in columns], dim=1)
    return torch.cat([table, torch.ones(len(table), 1, dtype=torch.float64)], dim=1)


def as_columns(numbers: Tensor) -> Tensor:
    """[unit] or [unit, number] as [unit, number]."""
    return numbers.double() if numbers.dim() > 1 else numbers.double()[:, None]


def mean_effect(numbers: Tensor) -> Interval:
    """The mean over units [unit]."""
    return resample(with_count(numbers), lambda sums: sums[..., 0] / sums[..., 1])


def share_effect(tallies: Tensor) -> Interval:
    """A part of a whole, which are the first two columns of [unit, number]."""
    return resample(tallies, lambda sums: sums[..., 0] / sums[..., 1], bounds=SHARE)


def ratio_effect(part: Tensor, whole: Tensor) -> Interval:
    """A sum of counts over another that has them all, both [unit] or [unit, layer]."""
    return share_effect(torch.stack([as_columns(one).sum(dim=1) for one in (part, whole)], dim=1))


def lowest_layer_effect(shares: Tensor) -> Interval:
    """The mean over prefixes of the layer where it is lowest, from shares [prefix, layer]."""
    if not shares.shape[1]:
        return resample(shares[:0], lambda sums: sums)
    return resample(
        with_count(shares),
        lambda sums: (sums[..., :-1] / sums[..., -1:]).min(dim=-1).values,
        bounds=SHARE,
    )


def activity_effects(active: Tensor) -> Effects:
    """From the share of each layer's memories that are active, [prefix, layer]."""
    low, high = ACTIVE

    def in_range(sums: Tensor) -> Tensor:
        means = sums[..., :-1] / sums[..., -1:]
        return torch.minimum(means.min(dim=-1).values - low, high - means.max(dim=-1).values)

    def dip(sums: Tensor) -> Tensor:
        return dip_depth(sums[..., :-1] / sums[..., -1:])

    drawn = Resamples(with_count(active))
    return {"activity_in_range": drawn.interval(in_range), "dip": drawn.interval(dip)}


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


def case_effects(agree: Tensor, kinds: dict[str, Tensor]) -> Effects:
    """How much more often a case is of a kind where a memory agrees, within layers.

    `agree` and each kind are [prefix, layer]. Layers count by how many cases agree in them, so that
    layers which differ in both make no effect of their own.
    """

    def statistic(sums: Tensor) -> Tensor:
        count = sums[..., -1:]
        both, agreeing, kind = sums[..., :-1].unflatten(-1, (3, -1)).unbind(-2)
        return (both - agreeing * kind / count).sum(dim=-1) / agreeing.sum(dim=-1)

    return {
        name: resample(with_count(agree & kind, agree, kind), statistic)
        for name, kind in kinds.items()
    }


def decision_effects(found: Predictions) -> Effects:
    """Figures 9 to 11 and the veto; layer 1, whose residual is the token just read, is apart."""
    last = found.output[:, -1]
    settled = (found.residual == last[:, None]).double()
    layers = settled.shape[1]
    early = place_of(BOTTOM_LAYERS, layers)
    kept = found.output == found.residual
    own = found.output == found.feedforward
    return {
        "settled_early": share_effect(with_count(settled[:, early])),
        "settled_early_above_others": mean_effect(
            settled[:, early] - share_of_each(found.residual[:, early], last)
        ),
        "settled_before_last": share_effect(with_count(settled[:, -1])),
        "late_growth": mean_effect(late_growth(settled)),
        "confidence": mean_effect(found.probability[:, -1].double() - found.probability[:, 0]),
        "kept": lowest_layer_effect(kept[:, 1:].double()),
        "residual_of_kept": ratio_effect((kept & ~own)[:, 1:], kept[:, 1:]),
        "composition_of_changes": ratio_effect((~kept & ~own)[:, 1:], ~kept[:, 1:]),
        **veto_effects(found.change[:, 1:], found.foreign_change[:, 1:]),
    }


def share_of_each(tokens: Tensor, among: Tensor) -> Tensor:
    """For each token [unit] the share of the other units that have it in `among` [unit]."""
    counts = torch.bincount(among, minlength=int(tokens.max()) + 1)
    others = counts[tokens] - (among == tokens).long()
    return others.double() / max(len(among) - 1, 1)


def late_growth(settled: Tensor) -> Tensor:
    """Gain per layer of the upper layers less that of the lower ones, from [prefix, layer]."""
    lower, upper = lower_and_upper(range(settled.shape[1]))
    early = (settled[:, lower[-1]] - settled[:, lower[0]]) / max(len(lower) - 1, 1)
    return (settled[:, upper[-1]] - settled[:, lower[-1]]) / len(upper) - early


def veto_effects(changes: Tensor, foreign: Tensor) -> Effects:
    """How often a change is a veto, and how much more than by another prefix's layer output."""
    known = foreign != UNKNOWN
    kinds = [
        one.sum(dim=1)
        for one in (changes == VETO, changes > 0, foreign == VETO, (foreign > 0) & known)
    ]

    def statistic(sums: Tensor) -> Tensor:
        return sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]

    return {
        "veto": ratio_effect(kinds[0], kinds[1]),
        "foreign_veto": ratio_effect(kinds[2], kinds[3]),
        "veto_above_foreign": resample(torch.stack(kinds, dim=1).double(), statistic),
    }


@dataclass(frozen=True)
class CellHits:
    """One layer's cells: does the value's top token follow the strongest trigger, all [cell]?

    `known` cells have a trigger that is followed by a token; the others count nowhere. `last` says
    whether the top token is the one just read. `shuffled` and `unigram` are what chance gives in
    this layer. `memory` is the memory of each cell: the unit that is resampled.
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
        """[memory, number]: hits, known cells, by shuffles, by frequency, last token."""
        known = self.known.double()
        columns = (self.hit * known, known, self.shuffled * known, self.unigram * known)
        table = torch.stack([*columns, self.last * known], dim=1)
        size = int(self.memory.max()) + 1 if len(self.memory) else 0
        return torch.zeros(size, 5, dtype=torch.float64).index_add_(0, self.memory, table)


def by_depth(tallies: Tensor, is_upper: Tensor) -> Tensor:
    """Tallies [unit, number] as [unit, 2 * number]: in the first half of lower units only."""
    upper = is_upper.double()[:, None]
    return torch.cat([tallies.double() * (1 - upper), tallies.double() * upper], dim=1)


def layers_by_depth(layers: Sequence[Tensor]) -> Tensor:
    """The same from the tallies of each layer."""
    lower, upper = (torch.cat(part) for part in lower_and_upper(layers))
    is_upper = torch.cat([torch.zeros(len(lower)), torch.ones(len(upper))])
    return by_depth(torch.cat([lower, upper]), is_upper)


def agreement_effects(layers: Sequence[CellHits]) -> Effects:
    """Figure 4: cells without a trigger are out of every denominator."""
    table = layers_by_depth([layer.tallies() for layer in layers])
    lower, upper = table[:, :5], Resamples(table[:, 5:])

    def above(column: int) -> Interval:
        return upper.interval(lambda sums: (sums[..., 0] - sums[..., column]) / sums[..., 1])

    return {
        "agreement_upper": upper.interval(lambda sums: sums[..., 0] / sums[..., 1], bounds=SHARE),
        "agreement_lower": share_effect(lower),
        "agreement_rise": resample(
            table, lambda sums: sums[..., 5] / sums[..., 6] - sums[..., 0] / sums[..., 1]
        ),
        "agreement_above_shuffled": above(2),
        "agreement_above_unigram": above(3),
        "agreement_above_last_token": above(4),
    }


def rank_effects(layers: Sequence[CellHits]) -> Effects:
    """Figure 5 in powers of two, so that ten places count more near the top."""

    def powers(ranks: Tensor) -> Tensor:
        return round_to_tenths((ranks.double() + 1).log2())

    table = layers_by_depth([with_count(powers(one.rank[one.known])) for one in layers])
    pairs = [(one, one.known & (one.shuffled_rank >= 0)) for one in lower_and_upper(layers)[1]]
    better = [powers(one.shuffled_rank[both]) - powers(one.rank[both]) for one, both in pairs]
    return {
        "rank_rise": resample(
            table, lambda sums: sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
        ),
        "rank_above_shuffled": mean_effect(round_to_tenths(torch.cat(better))),
    }


def round_to_tenths(numbers: Tensor) -> Tensor:
    """Few different numbers, so that resampling a million of them is quick."""
    return (numbers * 10).round() / 10


def certainty_effects(place: Tensor, bins: int, hit: Tensor, shuffled: Tensor) -> Effects:
    """Figure 6 from cells with a next token, all [cell]: `place` is the bin of each."""
    first, last = (place == 0).double(), (place == bins - 1).double()
    table = torch.stack([hit * first, first, hit * last, last, shuffled * last], dim=1)
    return {
        "sure_rise": resample(
            table, lambda sums: sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1]
        ),
        "sure_above_shuffled": resample(
            table[:, 2:], lambda sums: (sums[..., 0] - sums[..., 2]) / sums[..., 1]
        ),
    }


def removal_effects(layers: Sequence[Tensor]) -> Effects:
    """Figure 3 from [key, 6] of each layer: sum and count of the changes of first, last, random."""

    def means(sums: Tensor, at: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        first, last, random = (sums[..., at + k] / sums[..., at + k + 1] for k in (0, 2, 4))
        return first, last, random

    def last_most(sums: Tensor) -> Tensor:
        first, last, random = means(sums)
        return torch.minimum(first, random) - last

    table, every = layers_by_depth(layers), torch.cat(list(layers))
    percent = 100.0
    return {
        "last_most": resample(every, last_most, percent),
        "last_most_lower": resample(table[:, :6], last_most, percent),
        "last_most_upper": resample(table[:, 6:], last_most, percent),
        "last_fades": resample(table, lambda sums: means(sums, 6)[1] - means(sums)[1], percent),
        "first_least": resample(every, lambda sums: means(sums)[0] - means(sums)[2], percent),
        "first_above_last": resample(every, lambda sums: means(sums)[0] - means(sums)[1], percent),
    }


def is_semantic_depth(depth: Tensor, layers: int) -> Tensor:
    """Whether a layer, from 0, lies where the paper's layers are semantic."""
    return depth >= max(1, place_of(SEMANTIC, layers))


def takeover_effects(shallow: Tensor, semantic: Tensor, depth: Tensor, layers: int) -> Effects:
    """Figure 2 by key: shares of triggers that are shallow only and semantic only, all [key].

    `depth` [key] counts layers from 0. Lower layers are those before the paper's takeover.
    """
    lead = with_count(semantic.double() - shallow.double())
    table = by_depth(lead, is_semantic_depth(depth, layers))
    return {
        "takeover": resample(
            table, lambda sums: sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1]
        ),
        "shallow_leads_below": resample(table[:, :2], lambda sums: -sums[..., 0] / sums[..., 1]),
        "semantic_leads_above": resample(table[:, 2:], lambda sums: sums[..., 0] / sums[..., 1]),
    }


def ending_effects(same: Tensor, depth: Tensor, layers: int) -> Effects:
    """Shared last tokens: the share of a key's triggers that end in its commonest one, [key]."""
    table = by_depth(with_count(same), is_semantic_depth(depth, layers))
    return {
        "same_ending_lower": share_effect(table[:, :2]),
        "same_ending_fades": resample(
            table, lambda sums: sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
        ),
    }
