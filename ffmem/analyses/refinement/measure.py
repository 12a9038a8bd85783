"""How does the prediction change from layer to layer? Figures 9, 10 and 11, and the veto test."""

from __future__ import annotations

import torch
from torch import Tensor

from ffmem.analyses.controls import agreement_of_shuffles
from ffmem.analyses.inputs.effects import (
    lowest_layer_effect,
    mean_effect,
    ratio_effect,
    share_effect,
    side_by_side,
    with_count,
)
from ffmem.analyses.inputs.layer_readings import UNKNOWN, VETO, Predictions, SampleRecord
from ffmem.analyses.refinement.record import (
    ConventionSteps,
    LayerStep,
    LayerVeto,
    LengthEntropy,
    Refinement,
    RefinementEffects,
)
from ffmem.analyses.statistics import (
    Interval,
    bootstrap,
    lower_and_upper,
    per_unit,
    place_of,
    quantiles,
    resample,
    share_of,
    sum_by_unit,
)

LENGTHS = (0, 5, 10, 20, 40)  # tokens of a prefix where a new group begins


def measure(reading: SampleRecord, words: int, generator: torch.Generator) -> Refinement:
    """Follow the final token down the layers, and say who decides at each."""
    return Refinement(
        conventions=tuple(
            ConventionSteps(
                convention=found.convention.name,
                steps=tuple(steps(found, reading, generator)),
                veto=tuple(vetoes(found, reading, words)),
            )
            for found in reading.predictions
        ),
        entropy=tuple(_entropies(reading, generator)),
        prefixes=len(reading.sample),
        sentences=reading.sample.count,
        vocabulary=words,
        effects=decision_effects(reading.predictions[0], reading.sample.sentences),
    )


def steps(found: Predictions, reading: SampleRecord, generator: torch.Generator) -> list[LayerStep]:
    """Figures 9, 10 and 11."""
    rows, sentences = [], reading.sample.sentences
    for place, layer in enumerate(reading.layers):
        r, f, o = (t[:, place] for t in (found.residual, found.feedforward, found.output))
        probability = found.probability[:, place].double()
        rows.append(
            LayerStep(
                layer=layer,
                settled=share_of(r == found.last, sentences),
                shuffled=agreement_of_shuffles(r, found.last, generator),
                probability_quantiles=quantiles(probability.double()),
                mean_probability=bootstrap(per_unit(probability, sentences), generator),
                residual=share_of((o == r) & (o != f), sentences),
                agreement=share_of((o == r) & (o == f), sentences),
                composition=share_of((o != r) & (o != f), sentences),
                ffn=share_of((o == f) & (o != r), sentences),
                veto_both=share_of((r == f) & (o != r), sentences),
            )
        )
    return rows


def vetoes(found: Predictions, reading: SampleRecord, words: int) -> list[LayerVeto]:
    """The paper's conjecture: a change is a veto of the old token, not a vote for the new."""
    rows, sentences = [], reading.sample.sentences
    for place, layer in enumerate(reading.layers):
        changed = found.output[:, place] != found.residual[:, place]
        mine, others = sentences[changed], sentences[~changed]
        rank = found.old_rank_in_layer[:, place].double() / max(words - 1, 1)
        push = found.push_on_old[:, place]
        new_rank = found.new_rank_in_residual[:, place][changed]
        rows.append(
            LayerVeto(
                layer=layer,
                changes=int(changed.sum()),
                old_rank=quantiles(rank[changed]),
                unchanged_old_rank=quantiles(rank[~changed]),
                old_pushed_down=share_of(push[changed] < 0, mine),
                unchanged_pushed_down=share_of(push[~changed] < 0, others),
                new_in_top_10=share_of(new_rank < 10, mine),
                old_change=quantiles(found.old_change[:, place][changed].double()),
                new_change=quantiles(found.new_change[:, place][changed].double()),
                unchanged_change=quantiles(found.old_change[:, place][~changed].double()),
            )
        )
    return rows


def _entropies(reading: SampleRecord, generator: torch.Generator) -> list[LengthEntropy]:
    """The model's entropy by the length of the prefix; groups without a prefix are left out."""
    size = reading.sample.positions
    rows = []
    for first, beyond in zip(LENGTHS, [*LENGTHS[1:], int(size.max()) + 1], strict=True):
        chosen = (size >= first) & (size < beyond)
        mine = reading.entropy[chosen].double()
        if len(mine):
            mean = bootstrap(per_unit(mine, reading.sample.sentences[chosen]), generator)
            shortest = max(first, int(size.min()))
            rows.append(LengthEntropy(shortest, beyond - 1, quantiles(mine.double()), mean))
    return rows


BOTTOM_LAYERS = 5  # of the paper's layers: its bottom few


def decision_effects(found: Predictions, sentences: Tensor) -> RefinementEffects:
    """Figures 9 to 11 and the veto; layer 1, whose residual is the token just read, is apart."""
    last = found.output[:, -1]
    settled = (found.residual == last[:, None]).double()
    layers = settled.shape[1]
    early = place_of(BOTTOM_LAYERS, layers)
    kept = found.output == found.residual
    own = found.output == found.feedforward
    chance = share_elsewhere(found.residual[:, early], last, sentences)
    veto, foreign, more = _veto_effects(found.change[:, 1:], found.foreign_change[:, 1:], sentences)
    return RefinementEffects(
        settled_early=share_effect(with_count(settled[:, early], units=sentences)),
        settled_early_above_others=mean_effect(settled[:, early] - chance, sentences),
        settled_before_last=share_effect(with_count(settled[:, -1], units=sentences)),
        late_growth=mean_effect(late_growth(settled), sentences),
        confidence=mean_effect(
            found.probability[:, -1].double() - found.probability[:, 0], sentences
        ),
        kept=lowest_layer_effect(kept[:, 1:].double(), sentences),
        residual_of_kept=ratio_effect((kept & ~own)[:, 1:], kept[:, 1:], sentences),
        composition_of_changes=ratio_effect((~kept & ~own)[:, 1:], ~kept[:, 1:], sentences),
        veto=veto,
        foreign_veto=foreign,
        veto_above_foreign=more,
    )


def share_elsewhere(tokens: Tensor, among: Tensor, sentences: Tensor) -> Tensor:
    """For each token [row] the share of other sentences' rows that have it in `among` [row]."""
    words = int(torch.max(tokens.max(), among.max())) + 1
    pairs = torch.cat([sentences * words + among, sentences * words + tokens])
    place = pairs.unique(return_inverse=True)[1]
    own = place[: len(among)].bincount(minlength=len(pairs))[place[len(among) :]]
    others = among.bincount(minlength=words)[tokens] - own
    return others.double() / (len(among) - sentences.bincount()[sentences]).clamp(min=1)


def late_growth(settled: Tensor) -> Tensor:
    """Gain per layer of the upper layers less that of the lower ones, from [prefix, layer]."""
    lower, upper = lower_and_upper(range(settled.shape[1]))
    early = (settled[:, lower[-1]] - settled[:, lower[0]]) / max(len(lower) - 1, 1)
    return (settled[:, upper[-1]] - settled[:, lower[-1]]) / len(upper) - early


def _veto_effects(
    changes: Tensor, foreign: Tensor, sentences: Tensor
) -> tuple[Interval, Interval, Interval]:
    """How often a change is a veto, by another prefix's layer output, and how much more."""
    known = foreign != UNKNOWN
    kinds = [
        one.sum(dim=1)
        for one in (changes == VETO, changes > 0, foreign == VETO, (foreign > 0) & known)
    ]

    def statistic(sums: Tensor) -> Tensor:
        return sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]

    return (
        ratio_effect(kinds[0], kinds[1], sentences),
        ratio_effect(kinds[2], kinds[3], sentences),
        resample(sum_by_unit(side_by_side(*kinds), sentences), statistic),
    )
