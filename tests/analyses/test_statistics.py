import math

import pytest
import torch

from ffmem.analyses.statistics import bootstrap, wilson


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
