"""Claims are decided by numbers: planted results that hold, and their mirror images."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ffmem.analyses.statistics import Interval, wilson
from ffmem.analyses.values import Bin, LayerAgreement
from ffmem.report import paper_claims as paper
from ffmem.report.verdicts import exact, interval_text, judge_claims, lower_and_upper, pool_layers
from ffmem.studies.study import Study

UPPER_LAYERS = (11, 12, 13, 14, 15, 16)


def agreement(layer: int, hits: int) -> LayerAgreement:
    share, none = wilson(hits, 4096), wilson(1, 4096)
    return LayerAgreement(layer, "", share, share, share, none, 0.0, 0.0)


@pytest.mark.parametrize(("upper", "lower", "holds"), [(140, 2, True), (2, 140, False)])
def test_agreement_must_rise_with_depth(
    toy_study: Study, upper: int, lower: int, holds: bool
) -> None:
    layers = [agreement(n, upper if n in UPPER_LAYERS else lower) for n in range(1, 17)]
    values = replace(toy_study.result("values"), agreement=tuple(layers))
    found = paper.upper_values_agree(values)
    assert found.holds is holds
    assert found.number.n == 6 * 4096
    assert found.number.estimate == pytest.approx(upper / 4096)


@pytest.mark.parametrize(("first", "last", "holds"), [(1, 60, True), (60, 1, False)])
def test_sure_values_must_be_right_more_often(
    toy_study: Study, first: int, last: int, holds: bool
) -> None:
    bins = tuple(Bin(0.0, 1.0, wilson(hits, 100), wilson(2, 100)) for hits in (first, 30, last))
    values = replace(toy_study.result("values"), quantile_bins=bins)
    assert paper.sure_values_are_right(values).holds is holds


def test_the_last_token_must_cost_most_in_every_layer(toy_study: Study) -> None:
    removal = toy_study.result("removal")

    def changed(layer, first: float, last: float):
        one = replace(layer.first, mean=Interval(first, first - 1, first + 1, 9))
        other = replace(layer.last, mean=Interval(last, last - 1, last + 1, 9))
        return replace(layer, first=one, random=one, last=other, triggers=9)

    good = replace(removal, layers=tuple(changed(layer, -5, -70) for layer in removal.layers))
    assert paper.last_token_matters_most(good).holds
    one_bad = (changed(good.layers[0], -70, -5), *good.layers[1:])
    assert not paper.last_token_matters_most(replace(removal, layers=one_bad)).holds


def test_no_result_is_no_verdict() -> None:
    assert {verdict.word for verdict in judge_claims(paper.CLAIMS, {})} == {"not measured"}


def test_the_upper_layers_are_the_papers() -> None:
    lower, upper = lower_and_upper(range(1, 17))
    assert (lower[-1], upper[0]) == (10, 11)
    assert lower_and_upper([1]) == ([1], [1])
    assert [len(part) for part in lower_and_upper([1, 2, 3])] == [2, 1]


def test_numbers_are_written_for_people() -> None:
    assert interval_text(wilson(35, 1000), "share", interval=False) == "3.5 %"
    assert interval_text(exact(0.0004, 10), "share") == "0.04 % (n\u00a0=\u00a010)"
    assert interval_text(exact(-0.001, 10), "number", interval=False) == "0.00"
    assert interval_text(None, "share") == "–"
    assert interval_text(exact(math.nan, 0), "share") == "–"


def test_pooling_counts_every_case_once() -> None:
    assert pool_layers([wilson(1, 10), wilson(9, 90)]) == wilson(10, 100)
