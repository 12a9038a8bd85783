"""Comparing, counting and picking against the plain way, on the CPU and on a GPU, with ties."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ffmem.scan.layer_scan import LayerScan
from ffmem.scan.passes.selection import count_set, elements_at, greater, indices_set, nth_smallest
from ffmem.scan.settings import ScanSettings
from tests.scan.brute_force import assert_same, batched, brute_force, readings

GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)
on_each_device = pytest.mark.parametrize("device", ["cpu", GPU])


@pytest.fixture
def table() -> Tensor:
    """Few distinct numbers, so that most of a column are ties."""
    return torch.randint(-2, 3, (40, 7), generator=torch.Generator().manual_seed(0)) / 2


@on_each_device
@pytest.mark.parametrize("n", [1, 2, 20, 39, 40])
def test_the_nth_smallest_is_that_of_a_sorted_column(table: Tensor, n: int, device: str) -> None:
    found = nth_smallest(table.to(device), n)
    assert found.device.type == device
    assert found.tolist() == [sorted(column)[n - 1] for column in table.T.tolist()]


@on_each_device
def test_the_nth_smallest_of_whole_numbers(device: str) -> None:
    numbers = torch.tensor([[3, 2**31 - 1], [3, 5], [1, 2**31 - 1]], dtype=torch.int32)
    assert nth_smallest(numbers.to(device), 2).tolist() == [3, 2**31 - 1]
    assert nth_smallest(numbers.to(device), 2).dtype == torch.int32


@on_each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.bool])
def test_picked_are_the_numbers_counted_through_rows(
    table: Tensor, dtype: torch.dtype, device: str
) -> None:
    numbers, places = table.to(dtype), torch.tensor([0, 279, 8, 8, 0, 100])
    flat = [number for row in numbers.tolist() for number in row]
    found = elements_at(numbers.to(device), places.to(device))
    assert (found.device.type, found.dtype) == (device, dtype)
    assert found.tolist() == [flat[place] for place in places.tolist()]
    assert elements_at(numbers.to(device), places[:0].to(device)).tolist() == []


@on_each_device
def test_flags_are_those_of_each_number(table: Tensor, device: str) -> None:
    than = table[3]
    expected = [
        [number > limit for number, limit in zip(row, than.tolist(), strict=True)]
        for row in table.tolist()
    ]
    flags = greater(table.to(device), than.to(device))
    assert flags.tolist() == expected
    assert greater(table.to(device), 0.5).tolist() == [
        [number > 0.5 for number in row] for row in table.tolist()
    ]
    assert count_set(flags) == sum(map(sum, expected))
    places = [(r, c) for r, row in enumerate(expected) for c, flag in enumerate(row) if flag]
    row, column = indices_set(flags)
    assert list(zip(row.tolist(), column.tolist(), strict=True)) == places


@on_each_device
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("per_sentence", ["max", "all"])
def test_a_scan_in_plain_torch_gives_what_brute_force_gives(
    per_sentence: str, signed: bool, device: str
) -> None:
    """Batches larger than the slots, so that thresholds are raised within a batch; ties abound."""
    chosen = ScanSettings(top=3, sample=2, per_sentence=per_sentence, signed=signed)  # type: ignore[arg-type]
    sentences = readings(torch.Generator().manual_seed(5), 60, 7, longest=9)
    layer = LayerScan(7, chosen, device, use_kernel=False)
    for start in range(0, len(sentences), 30):
        m, batch = batched(sentences[start : start + 30], 1, 2, torch.float32)
        layer.take_in(m.to(device), batch)
    assert_same(layer.state().to("cpu"), brute_force(sentences, chosen, 1))
