"""Composition as numbers: Figures 7 and 8."""

from __future__ import annotations

from dataclasses import dataclass

from ffmem.analyses.statistics import Interval


@dataclass(frozen=True)
class LayerActivity:
    """Figure 7 for one layer over the prefixes: shares of its memories, in per cent.

    Each tuple holds quantiles at 5, 25, 50, 75 and 95 %: memories with a coefficient above zero (in
    a gated layer memories whose gate is on, whatever the sign of the coefficient), those above the
    small threshold, those that make up 90 % of sum |m| ||v||, and the participation ratio of the
    same sum.
    """

    layer: int
    memories: int
    active: tuple[float, ...]
    active_eps: tuple[float, ...]
    for_90: tuple[float, ...]
    participation: tuple[float, ...]
    mean_active: float  # memories, not per cent


@dataclass(frozen=True)
class LayerZeroAgreement:
    """Figure 8 for one layer: share of prefixes where no memory's top token is the layer's.

    `all` and `active` say which memories may agree, `_o` compares with the block's output as the
    released code does. `random_values` replaces the values by random directions.
    """

    layer: int
    all: Interval
    active: Interval
    all_o: Interval
    random_values: Interval


@dataclass(frozen=True)
class AgreeingCases:
    """Of the cases (prefix, layer) where some memory agrees: what kind they are, with base rates.

    The token is the top token of y. Base rates are over all cases.
    """

    stop_word: Interval
    stop_word_base: Interval
    punctuation: Interval
    punctuation_base: Interval
    short: Interval
    short_base: Interval


@dataclass(frozen=True)
class ActivityEffects:
    """Figure 7: how far all layers lie inside the paper's range, and how deep the dip is there."""

    in_range: Interval
    dip: Interval


@dataclass(frozen=True)
class CaseEffects:
    """How much more often than in the same layer a case where a memory agrees is of a kind."""

    stop_words: Interval
    short_prefixes: Interval


@dataclass(frozen=True)
class CompositionEffects:
    """Differences by sentence; `composed` is zero agreement in the lowest layer."""

    activity: ActivityEffects
    composed: Interval
    cases: CaseEffects


@dataclass(frozen=True)
class Composition:
    """Section 5.1 of the paper on one sample; `effects` are what its claims rest on."""

    activity: tuple[LayerActivity, ...]
    zero_agreement: tuple[LayerZeroAgreement, ...]
    agreeing: AgreeingCases
    prefixes: int
    sentences: int  # that they are of
    gated: bool  # then active memories are those whose gate is on
    effects: CompositionEffects
