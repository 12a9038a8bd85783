import math

import numpy as np
import pytest
import torch

from ffmem.analyses import statistics
from ffmem.analyses.inputs.effects import (
    gain_with_depth,
    lowest_layer_effect,
    mean_effect,
    ratio_effect,
    share_effect,
    with_count,
)
from ffmem.analyses.statistics import (
    SHARE,
    T_QUANTILES,
    Interval,
    Resamples,
    beyond_seeds,
    bootstrap,
    chance_at_most,
    difference,
    distinct_rows,
    holm,
    resample,
    share_of,
    wilson,
)


def test_wilson_solves_its_own_equation() -> None:
    """At either end of the interval, the share lies z standard errors away."""
    for successes, trials in ((3, 40), (20, 40), (39, 40)):
        found = wilson(successes, trials)
        for end in (found.low, found.high):
            error = math.sqrt(end * (1 - end) / trials)
            assert abs(found.estimate - end) == pytest.approx(1.959964 * error, rel=1e-4)


def test_wilson_never_leaves_zero_to_one() -> None:
    assert wilson(0, 5).low == 0 < wilson(0, 5).high < 1
    assert wilson(5, 5).high == 1 > wilson(5, 5).low > 0
    assert math.isnan(wilson(0, 0).estimate)


def test_flags_of_one_unit_count_as_often_as_they_vary_apart() -> None:
    draw = torch.Generator().manual_seed(0)
    flags, units = torch.rand(300, generator=draw) < 0.3, torch.arange(300)
    alone, four = share_of(flags, units), share_of(flags.repeat(4), units.repeat(4))
    assert (four.estimate, four.low, four.high) == pytest.approx(
        (alone.estimate, alone.low, alone.high)
    )
    assert alone.n == four.n == 300
    plain = share_of(flags)
    assert (plain.low, plain.high) == pytest.approx((alone.low, alone.high))
    pooled = share_of(flags.repeat(4))
    assert pooled.high - pooled.low < 0.6 * (four.high - four.low)
    assert share_of(torch.ones(8) > 0, torch.arange(8) // 4) == wilson(2, 2)  # units, not flags
    assert math.isnan(share_of(flags[:0], units[:0]).estimate)


def test_the_interval_of_alike_flags_covers_their_share_about_as_often_as_it_says() -> None:
    """Every unit has a share of its own, and one to five flags."""
    draw, hits = torch.Generator().manual_seed(1), 0
    for _ in range(300):
        units = torch.arange(150).repeat_interleave(torch.randint(1, 6, (150,), generator=draw))
        own = torch.rand(150, generator=draw) ** 2  # a third on average
        found = share_of(torch.rand(len(units), generator=draw) < own[units], units)
        hits += found.low <= 1 / 3 <= found.high
    assert 0.9 < hits / 300 <= 0.99


def test_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    draw = torch.Generator().manual_seed(0)
    hits = 0
    for _ in range(200):
        found = bootstrap(torch.randn(40, generator=draw) + 3, draw, rounds=200)
        hits += found.low <= 3 <= found.high
    assert 175 <= hits <= 198


def test_bootstrap_resamples_rows_and_repeats_with_its_seed() -> None:
    values = torch.arange(12.0).view(4, 3)
    one, other = (bootstrap(values, torch.Generator().manual_seed(5)) for _ in range(2))
    assert one == other
    assert one.estimate == pytest.approx(5.5)
    assert one.n == 4
    assert math.isnan(bootstrap(torch.zeros(0), torch.Generator()).estimate)


def test_bootstrap_of_very_many_resamples_groups_as_wide_as_single_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = torch.Generator().manual_seed(1)
    rare = torch.zeros(9001)
    rare[17] = 9001.0  # one observation makes all of the mean
    for values in (torch.randn(9001, generator=draw).exp(), rare):
        grouped = bootstrap(values, torch.Generator().manual_seed(2))
        monkeypatch.setattr(statistics, "MOST_UNITS", 10_000)
        single = bootstrap(values, torch.Generator().manual_seed(2))
        monkeypatch.undo()
        assert (grouped.estimate, grouped.n) == (single.estimate, 9001)
        width = single.high - single.low
        assert grouped.high - grouped.low == pytest.approx(width, rel=0.15)
        assert grouped.low == pytest.approx(single.low, abs=0.1 * width)


def test_bootstrap_of_groups_divides_what_was_drawn_by_how_many_observations_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups differ in size by one; the slow way carries the sum and the size of each."""
    monkeypatch.setattr(statistics, "MOST_UNITS", 7)
    monkeypatch.setattr(statistics, "_BOOTSTRAP_SIZE", 30)  # four rounds at a time
    values = torch.arange(24.0).square().double()
    found = bootstrap(values, torch.Generator().manual_seed(3), rounds=50)
    draw = torch.Generator().manual_seed(3)
    group = torch.randperm(24, generator=draw) % 7
    members = [values[group == one] for one in range(7)]
    assert {len(one) for one in members} == {3, 4}
    means = []
    for _ in range(50):
        drawn = torch.cat([members[i] for i in torch.randint(7, (7,), generator=draw).tolist()])
        means.append(drawn.mean())
    low, high = torch.stack(means).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6)


def test_rows_that_occur_again_are_counted_in_lexical_order() -> None:
    table = np.random.default_rng(0).integers(-2, 2, (500, 4)) / 4
    for some in (table, table[:1], table[:, :1]):
        rows, times = distinct_rows(some)
        wanted, expected = np.unique(some, axis=0, return_counts=True)
        assert np.array_equal(rows, wanted)
        assert times.tolist() == expected.tolist()


def share(sums: torch.Tensor) -> torch.Tensor:
    return sums[..., 0] / sums[..., 1]


def test_whole_units_are_resampled() -> None:
    """Ten cases of a prefix that are all alike are one observation, not ten."""
    draw = torch.Generator().manual_seed(0)
    flags = (torch.rand(300, generator=draw) < 0.4).double()
    alone = resample(torch.stack([flags, torch.ones(300).double()], dim=1), share)
    copies = resample(torch.stack([10 * flags, torch.full((300,), 10.0).double()], dim=1), share)
    assert copies == alone
    exact = wilson(int(flags.sum()), 300)
    assert (alone.estimate, alone.n) == (exact.estimate, 300)
    assert alone.low == pytest.approx(exact.low, abs=0.012)
    assert alone.high == pytest.approx(exact.high, abs=0.012)


def test_units_drawn_once_give_every_statistic_the_interval_of_its_own_draws() -> None:
    tallies = torch.randint(0, 3, (60, 3), generator=torch.Generator().manual_seed(4)).double()
    drawn = Resamples(tallies)
    others = (share, lambda sums: sums[..., 2] / sums[..., 0])
    for statistic in others:
        assert drawn.interval(statistic, 0.1) == resample(tallies, statistic, 0.1)
    assert drawn.interval(others[0]) != drawn.interval(others[1])


def test_resampling_covers_a_ratio_about_as_often_as_it_says() -> None:
    draw = torch.Generator().manual_seed(0)
    hits = 0
    for _ in range(200):
        size = torch.randint(1, 6, (80,), generator=draw).double()
        part = torch.stack([(torch.rand(int(n), generator=draw) < 0.3).sum() for n in size])
        found = Resamples(torch.stack([part.double(), size], dim=1), 300).interval(share)
        hits += found.low <= 0.3 <= found.high
    assert hits >= 0.9 * 200


def test_no_exception_in_a_sample_is_not_none_at_all() -> None:
    found = resample(torch.ones(50, 2).double(), share)
    assert (found.estimate, found.low) == (1.0, pytest.approx(1 - 3 / 50))
    assert math.isnan(resample(torch.zeros(4, 2).double(), share).estimate)  # nothing was counted
    assert resample(torch.ones(0, 2), share).n == 0


def test_the_interval_of_a_share_is_of_shares() -> None:
    """The rule of three widens it, but not beyond none or all; differences may lie below zero."""
    few = torch.tensor([[1.0, 1.0]] * 43 + [[0.0, 1.0]]).double()
    most = resample(few, share, bounds=SHARE)
    assert most.low == pytest.approx(40 / 44)
    assert most.high == 1.0
    free = resample(few, share)
    assert free.high == pytest.approx(46 / 44)
    assert (free.estimate, free.low, free.n) == (most.estimate, most.low, most.n)
    flags = torch.zeros(44, 3).double()
    flags[0] = 1
    assert share_effect(with_count(flags[:, 0])).low == 0.0
    assert lowest_layer_effect(1 - flags).high == 1.0
    assert ratio_effect(flags, torch.ones(44, 3)).low == 0.0
    assert mean_effect(-flags[:, 0]).low < 0.0


def test_three_more_units_are_as_far_away_as_the_farthest_that_was_seen() -> None:
    """Of percents, whose possible range says nothing about what a key does."""
    changes = torch.full((100, 1), -80.0).double()
    changes[0] = -60
    found = resample(with_count(changes), share, largest=None)
    assert found.estimate == pytest.approx(-79.8)
    deviation = 60 - 79.8  # of the farthest, when it is left out
    assert found.high == pytest.approx(-79.8 - 3 / 99 * deviation, abs=1e-3)
    wide = resample(with_count(changes), share, largest=100)
    assert wide.high == pytest.approx(-79.8 + 3)


def test_a_difference_of_independent_samples_adds_squares() -> None:
    found = difference(Interval(5, 2, 9, 40), Interval(1, -2, 5, 30))
    assert (found.estimate, found.n) == (4, 30)
    assert found.low == pytest.approx(4 - (3**2 + 4**2) ** 0.5)
    assert found.high == pytest.approx(4 + (4**2 + 3**2) ** 0.5)


def test_the_chance_of_an_interval_that_ends_at_the_bar_is_its_tail() -> None:
    assert chance_at_most(Interval(2, 1, 3, 50), 1) == pytest.approx(0.025)
    assert chance_at_most(Interval(2, 1, 3, 50), 2) == pytest.approx(0.5)
    assert chance_at_most(Interval(2, 2, 2, 50), 1) == 0
    assert chance_at_most(Interval(2, 2, 2, 50), 2) == 1
    assert chance_at_most(Interval(math.nan, 0, 1, 0), 0) == 1


def test_holm_is_bonferroni_for_the_first_and_milder_for_the_next() -> None:
    assert holm([0.04, 0.001, 0.02]) == pytest.approx([0.04, 0.003, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_kind_whose_seeds_differ_more_than_those_of_others_has_its_own_deviation() -> None:
    """Small fresh weights hardly differ from seed to seed; permuted ones of some sizes do."""

    def kind(*estimates: float) -> list[Interval]:
        return [Interval(one, one, one, 100) for one in estimates]

    calm, wild = kind(0.10, 0.10, 0.10), kind(0.05, 0.10, 0.15)
    (beside, span), (alone,) = beyond_seeds([calm, wild]), beyond_seeds([wild])
    pooled = (0.005 / 4 * (1 + 1 / 3)) ** 0.5
    own = (0.005 / 2 * (1 + 1 / 3)) ** 0.5
    assert beside.high - beside.estimate == pytest.approx(T_QUANTILES[3] * pooled)
    for found in (span, alone):  # a calm kind beside it makes it no surer
        assert found.high - found.estimate == pytest.approx(T_QUANTILES[1] * own)


def test_a_gain_with_depth_is_that_of_the_line_from_the_lowest_layer_to_the_highest() -> None:
    depth = torch.arange(16).repeat_interleave(10)
    noise = torch.rand(160, generator=torch.Generator().manual_seed(0))
    numbers = 0.02 * depth + noise
    found = gain_with_depth(numbers, depth)
    assert found.estimate == pytest.approx(15 * np.polyfit(depth.numpy(), numbers.numpy(), 1)[0])
    assert found.low < 0.3 < found.high
    assert found.low > 0 > gain_with_depth(noise, depth).low
    assert math.isnan(gain_with_depth(noise, torch.zeros(160)).estimate)  # one layer has no line
