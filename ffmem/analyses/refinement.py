"""How does the prediction change from layer to layer? Figures 9, 10 and 11, and the veto test."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ffmem.analyses.controls import agreement_of_shuffles
from ffmem.analyses.inputs.claim_effects import Effects, decision_effects
from ffmem.analyses.inputs.layer_readings import Predictions, SampleRecord
from ffmem.analyses.statistics import Interval, bootstrap, quantiles, share_of

LENGTHS = (0, 5, 10, 20, 40)  # tokens of a prefix where a new group begins


@dataclass(frozen=True)
class LayerStep:
    """One layer under one convention.

    Figure 9: `settled`, the share of prefixes whose residual already has the final token on top,
    and the same for final tokens of other prefixes (`shuffled`). Figure 10: quantiles of the
    probability that the residual gives to it. Figure 11: shares of who wins; they add up to one.
    `veto_both` (R = F != O) is part of `composition`.
    """

    layer: int
    settled: Interval
    shuffled: Interval
    rank_quantiles: tuple[float, ...]
    probability_quantiles: tuple[float, ...]
    mean_probability: Interval
    residual: Interval
    agreement: Interval
    composition: Interval
    ffn: Interval
    veto_both: Interval


@dataclass(frozen=True)
class LayerVeto:
    """Prefixes where a layer changes the top token: is the old one pushed down by the layer?

    `old_rank` is the old token's place under y as a share of the vocabulary (1 is the bottom),
    quantiles at 5, 25, 50, 75, 95 %; `unchanged_old_rank` the same where the token stays, which
    is what a veto must be compared with. `old_pushed_down` counts changes where y lowers the old
    token at all, that is gives it a logit below zero. `new_rank` is where the new token stood in
    the residual, `new_in_top_10` how often among the ten best. `old_change` and `new_change` are
    quantiles of how much the logits of the old and of the new token differ between r and o (in
    logits, which only compare within one model), `unchanged_change` those of tokens that stay.
    """

    layer: int
    changes: int
    old_rank: tuple[float, ...]
    unchanged_old_rank: tuple[float, ...]
    old_probability: tuple[float, ...]
    old_pushed_down: Interval
    unchanged_pushed_down: Interval
    new_rank: tuple[float, ...]
    new_in_top_10: Interval
    old_change: tuple[float, ...]
    new_change: tuple[float, ...]
    unchanged_change: tuple[float, ...]


@dataclass(frozen=True)
class LengthEntropy:
    """How sure the model is after prefixes of `shortest` to `longest` tokens, in nats.

    Quantiles at 5, 25, 50, 75, 95 % of the entropy of its distribution; log(vocabulary) is the
    most there can be. `longest` is the sample's longest prefix in the last group.
    """

    shortest: int
    longest: int
    quantiles: tuple[float, ...]
    mean: Interval


@dataclass(frozen=True)
class ConventionSteps:
    """All layers under one convention; `mismatch`: how often its last token is not the model's."""

    convention: str
    mismatch: Interval
    steps: tuple[LayerStep, ...]
    veto: tuple[LayerVeto, ...]


@dataclass(frozen=True)
class Refinement:
    """Section 5.2 of the paper on one sample, under every convention that makes a difference.

    `effects` are what its claims rest on, under the default convention.
    """

    conventions: tuple[ConventionSteps, ...]
    entropy: tuple[LengthEntropy, ...]
    prefixes: int
    seed: int
    vocabulary: int
    effects: Effects = field(default_factory=dict)


def refinement(reading: SampleRecord, words: int, generator: torch.Generator) -> Refinement:
    """Follow the final token down the layers, and say who decides at each."""
    return Refinement(
        conventions=tuple(
            ConventionSteps(
                convention=found.convention.name,
                mismatch=share_of(found.last != reading.output),
                steps=tuple(steps(found, reading.layers, generator)),
                veto=tuple(vetoes(found, reading.layers, words)),
            )
            for found in reading.predictions
        ),
        entropy=tuple(entropies(reading, generator)),
        prefixes=len(reading.sample),
        seed=reading.sample.seed,
        vocabulary=words,
        effects=decision_effects(reading.predictions[0]),
    )


def steps(
    found: Predictions, layers: tuple[int, ...], generator: torch.Generator
) -> list[LayerStep]:
    """Figures 9, 10 and 11."""
    rows = []
    for place, layer in enumerate(layers):
        r, f, o = (t[:, place] for t in (found.residual, found.feedforward, found.output))
        probability = found.probability[:, place].double()
        rows.append(
            LayerStep(
                layer=layer,
                settled=share_of(r == found.last),
                shuffled=agreement_of_shuffles(r, found.last, generator),
                rank_quantiles=quantiles(found.rank[:, place]),
                probability_quantiles=quantiles(probability.double()),
                mean_probability=bootstrap(probability, generator),
                residual=share_of((o == r) & (o != f)),
                agreement=share_of((o == r) & (o == f)),
                composition=share_of((o != r) & (o != f)),
                ffn=share_of((o == f) & (o != r)),
                veto_both=share_of((r == f) & (o != r)),
            )
        )
    return rows


def vetoes(found: Predictions, layers: tuple[int, ...], words: int) -> list[LayerVeto]:
    """The paper's conjecture: a change is a veto of the old token, not a vote for the new."""
    rows = []
    for place, layer in enumerate(layers):
        changed = found.output[:, place] != found.residual[:, place]
        rank = found.old_rank_in_layer[:, place].double() / max(words - 1, 1)
        push, probability = found.push_on_old[:, place], found.old_probability_in_layer[:, place]
        new_rank = found.new_rank_in_residual[:, place][changed]
        rows.append(
            LayerVeto(
                layer=layer,
                changes=int(changed.sum()),
                old_rank=quantiles(rank[changed]),
                unchanged_old_rank=quantiles(rank[~changed]),
                old_probability=quantiles(probability[changed].double()),
                old_pushed_down=share_of(push[changed] < 0),
                unchanged_pushed_down=share_of(push[~changed] < 0),
                new_rank=quantiles(new_rank),
                new_in_top_10=share_of(new_rank < 10),
                old_change=quantiles(found.old_change[:, place][changed].double()),
                new_change=quantiles(found.new_change[:, place][changed].double()),
                unchanged_change=quantiles(found.old_change[:, place][~changed].double()),
            )
        )
    return rows


def entropies(reading: SampleRecord, generator: torch.Generator) -> list[LengthEntropy]:
    """The model's entropy by the length of the prefix; groups without a prefix are left out."""
    size = reading.sample.positions
    rows = []
    for first, beyond in zip(LENGTHS, [*LENGTHS[1:], int(size.max()) + 1], strict=True):
        mine = reading.entropy[(size >= first) & (size < beyond)].double()
        if len(mine):
            mean = bootstrap(mine, generator)
            shortest = max(first, int(size.min()))
            rows.append(LengthEntropy(shortest, beyond - 1, quantiles(mine.double()), mean))
    return rows
