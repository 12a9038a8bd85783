"""What the reader of shards tells the end of a scan."""

import numpy as np
import pytest

from ffmem.execution.shard_reader import distinct


@pytest.mark.parametrize("numbers", [0, 1, 500])
@pytest.mark.parametrize("span", [1, 400, 1 << 40])
def test_distinct_numbers_are_what_numpys_unique_gives(numbers: int, span: int) -> None:
    """Near each other or far apart, and far from zero."""
    some = np.random.default_rng(numbers).integers(1 << 33, (1 << 33) + span, numbers)
    found = distinct(some)
    assert found.dtype == np.int64
    assert found.tolist() == np.unique(some).tolist()
