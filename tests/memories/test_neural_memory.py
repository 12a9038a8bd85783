from __future__ import annotations

import math

import pytest
import torch

import ffmem
from ffmem.errors import FfmemError


def test_it_is_the_weighted_mean_of_the_values() -> None:
    draw = torch.Generator().manual_seed(0)
    keys, values, x = (torch.randn(*size, generator=draw) for size in ((5, 3), (5, 4), (2, 3)))
    found = ffmem.neural_memory(keys, values, x)
    for row in range(2):
        fits = [math.exp(sum(float(a) * float(b) for a, b in zip(x[row], k))) for k in keys]  # noqa: B905
        expected = [
            sum(fit * float(value) for fit, value in zip(fits, values[:, column], strict=True))
            / sum(fits)
            for column in range(4)
        ]
        assert found[row].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_where_one_key_fits_far_better_it_is_that_keys_value_and_a_layer_is_not() -> None:
    keys, values = 100 * torch.eye(2), torch.tensor([[2.0, 3.0], [4.0, 1.0]])
    x = torch.tensor([0.75, 0.25])  # scores 75 and 25
    assert ffmem.neural_memory(keys, values, x).tolist() == [2.0, 3.0]
    assert ((x @ keys.T).relu() @ values).tolist() == [75 * 2 + 25 * 4, 75 * 3 + 25 * 1]


@pytest.mark.parametrize(
    ("keys", "values", "x"), [((2, 3), (3, 3), (3,)), ((2, 3), (2, 3), (2,)), ((3,), (2, 3), (3,))]
)
def test_shapes_that_do_not_fit_are_refused_by_name(
    keys: tuple[int, ...], values: tuple[int, ...], x: tuple[int, ...]
) -> None:
    with pytest.raises(FfmemError, match=r"keys \[memory, width\], values \[memory, size\]"):
        ffmem.neural_memory(torch.zeros(keys), torch.zeros(values), torch.zeros(x))
