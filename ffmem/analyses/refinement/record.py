"""How predictions change from layer to layer, as numbers: Figures 9, 10 and 11."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


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
    token at all, that is gives it a logit below zero. `new_in_top_10` says how often the new token
    was among the ten best of the residual. `old_change` and `new_change` are
    quantiles of how much the logits of the old and of the new token differ between r and o (in
    logits, which only compare within one model), `unchanged_change` those of tokens that stay.
    """

    layer: int
    changes: int
    old_rank: tuple[float, ...]
    unchanged_old_rank: tuple[float, ...]
    old_pushed_down: Interval
    unchanged_pushed_down: Interval
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
    """All layers under one convention."""

    convention: str
    steps: tuple[LayerStep, ...]
    veto: tuple[LayerVeto, ...]


@dataclass(frozen=True)
class RefinementEffects:
    """Differences by sentence; layer 1, whose residual is the token just read, is apart.

    Shares of prefixes with the final token on top of the residual: `settled_early` at the depth of
    the paper's fifth layer, and above other prefixes' tokens there; `settled_before_last` at the
    last layer. `late_growth` and `confidence` are gains with depth. Shares of the cases where the
    residual's token stays, of those against the layer, of changes to neither token, and of changes
    that are vetoes: by the layer, by another prefix's layer, and their difference.
    """

    settled_early: Interval
    settled_early_above_others: Interval
    settled_before_last: Interval
    late_growth: Interval
    confidence: Interval
    kept: Interval
    residual_of_kept: Interval
    composition_of_changes: Interval
    veto: Interval
    foreign_veto: Interval
    veto_above_foreign: Interval


@dataclass(frozen=True)
class Refinement:
    """Section 5.2 of the paper on one sample, under every convention that makes a difference.

    `effects` are what its claims rest on, under the default convention.
    """

    conventions: tuple[ConventionSteps, ...]
    entropy: tuple[LengthEntropy, ...]
    prefixes: int
    sentences: int  # that they are of
    vocabulary: int
    effects: RefinementEffects
