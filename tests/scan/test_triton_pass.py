"""The GPU's one-read pass against brute force and against plain torch.

Runs on a CUDA device, or anywhere with TRITON_INTERPRET=1 where triton is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from ffmem.errors import ScanError
from ffmem.models.experts.routing import RoutedCoefficients
from ffmem.scan.launch_queue import LaunchQueue
from ffmem.scan.layer_scan import LayerScan, LayerState
from ffmem.scan.settings import ScanSettings
from tests.scan.brute_force import (
    FakeBatch,
    Reading,
    assert_same,
    batched,
    brute_force,
    far_readings,
    readings,
)

pytest.importorskip("triton", reason="triton is not installed")
triton_pass = pytest.importorskip("ffmem.scan.passes.triton_pass")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("needs a CUDA device or TRITON_INTERPRET=1", allow_module_level=True)

pytestmark = pytest.mark.gpu
DEVICE = "cpu" if INTERPRETED else "cuda"
MEMORIES = 7


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run one after the other under the interpreter; fewer of them take more turns."""
    if INTERPRETED:
        monkeypatch.setattr("ffmem.scan.passes.triton_pass.FINDERS", 2)


CHOICES = [
    ScanSettings(top=4, sample=3),
    ScanSettings(top=4, sample=3, signed=True),
    ScanSettings(top=2, sample=0, min_prefix=0, include_final=True),
    ScanSettings(top=5, sample=3, min_prefix=2, seed=9),
    ScanSettings(top=4, sample=3, dedupe="prefix", include_final=True),
    ScanSettings(top=4, sample=3, dedupe="sentence", signed=True),
]


def scanned(
    layer: LayerScan, sentences: list[Reading], size: int, dtype: torch.dtype = torch.float32
) -> LayerState:
    for start in range(0, len(sentences), size):
        m, batch = batched(sentences[start : start + size], 1, 2, dtype)
        layer.take_in(m.to(DEVICE), batch)
    return layer.state().to("cpu")


@pytest.mark.parametrize("chosen", CHOICES)
@pytest.mark.parametrize("size", [3, 10])
def test_the_kernel_gives_what_brute_force_gives(chosen: ScanSettings, size: int) -> None:
    sentences = readings(torch.Generator().manual_seed(size), 60, MEMORIES, longest=11)
    layer = LayerScan(MEMORIES, chosen, DEVICE)
    assert layer.uses_kernel
    assert_same(scanned(layer, sentences, size), brute_force(sentences, chosen, 1))


@pytest.mark.parametrize(
    "chosen",
    [
        ScanSettings(top=1, sample=0, signed=True),
        ScanSettings(top=1, sample=1, dedupe="prefix"),
        ScanSettings(top=3, sample=0, dedupe="prefix", signed=True, include_final=True),
        ScanSettings(top=2, sample=19, min_prefix=0, signed=True),
        ScanSettings(top=35, sample=5, dedupe="sentence"),
        ScanSettings(top=256, sample=256),
    ],
)
def test_slots_of_any_number_and_rows_of_many_columns(chosen: ScanSettings) -> None:
    """More columns than one look at a row takes, more candidates than a turn of a list."""
    sentences = readings(torch.Generator().manual_seed(7), 45, 2, longest=40)
    layer = LayerScan(2, chosen, DEVICE)
    assert layer.uses_kernel
    assert_same(scanned(layer, sentences, 23), brute_force(sentences, chosen, 1))


def as_columns_first(m: Tensor) -> Tensor:
    return m.transpose(0, 1).contiguous().transpose(0, 1)


def as_half_of_wider_lines(m: Tensor) -> Tensor:
    return torch.cat([torch.full_like(m, 999.0), m], dim=2)[:, :, m.shape[2] :]


def as_every_second(m: Tensor) -> Tensor:
    return torch.stack([m, torch.full_like(m, 999.0)], dim=3)[:, :, :, 0]


@pytest.mark.parametrize("lay", [as_columns_first, as_half_of_wider_lines, as_every_second])
def test_coefficients_may_lie_in_memory_in_any_way(lay: Callable[[Tensor], Tensor]) -> None:
    chosen = ScanSettings(top=4, sample=3, signed=True)
    sentences = readings(torch.Generator().manual_seed(8), 24, MEMORIES)
    layer = LayerScan(MEMORIES, chosen, DEVICE)
    for start in range(0, len(sentences), 8):
        m, batch = batched(sentences[start : start + 8], 1, 2)
        laid = lay(m.to(DEVICE))
        assert not laid.is_contiguous()
        layer.take_in(laid, batch)
    assert_same(layer.state().to("cpu"), brute_force(sentences, chosen, 1))


@pytest.mark.skipif(not INTERPRETED, reason="takes memory that only a CPU need not have")
@pytest.mark.parametrize("first", [1, 9])
@pytest.mark.parametrize("dedupe", ["none", "prefix"])
def test_columns_further_apart_than_an_int32_counts_are_found(
    first: int, dedupe: Literal["none", "prefix"]
) -> None:
    """As in very long sentences; nothing is read between these, so no memory is taken there."""
    chosen, apart = ScanSettings(top=2, sample=1, min_prefix=first, dedupe=dedupe), 2**28 - 1
    reading = Reading(0, list(range(11)), torch.arange(1, 25).view(12, 2) / 8)
    near, batch = batched([reading], 1, 0)
    far = torch.empty(11 * apart + 2, dtype=torch.bfloat16).as_strided((1, 12, 2), (1, apart, 1))
    layer = LayerScan(2, chosen, DEVICE)
    layer.take_in(far.copy_(near), batch)
    assert_same(layer.state(), brute_force([reading], chosen, 1))


def test_layers_share_what_waits_whatever_their_size_and_kind() -> None:
    """Two dense layers of one size, one of another, and a mixture, batch after batch."""
    chosen = ScanSettings(top=3, sample=2)
    shared, size = LaunchQueue(chosen), EXPERTS * SIZE
    sentences = routed_readings(12, 3)
    columns = [slice(0, 4), slice(4, 8), slice(2, 8), slice(0, size)]
    layers = [LayerScan(4, chosen, DEVICE, shared) for _ in range(2)]
    layers.append(LayerScan(6, chosen, DEVICE, shared))
    layers.append(LayerScan(size, chosen, DEVICE, shared, expert_size=SIZE))
    lists = [shared.lists(layer.memories, layer.device) for layer in layers[1:3]]
    assert lists[0].rows is lists[1].rows
    for start in range(0, len(sentences), 6):
        m, batch = batched(sentences[start : start + 6], 1, 2)
        for layer, own in zip(layers[:3], columns, strict=False):
            layer.take_in(m[:, :, own].contiguous().to(DEVICE), batch)
        feed(layers[3], m[:, :, :size].contiguous(), batch, 0)
    for layer, own in zip(layers, columns, strict=True):
        parts = [replace(sentence, m=sentence.m[:, own]) for sentence in sentences]
        assert_same(layer.state().to("cpu"), brute_force(parts, chosen, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_reads_half_precision(dtype: torch.dtype) -> None:
    chosen = ScanSettings(top=4, sample=3)
    sentences = readings(torch.Generator().manual_seed(4), 40, MEMORIES)
    found = scanned(LayerScan(MEMORIES, chosen, DEVICE), sentences, 8, dtype)
    assert_same(found, brute_force(sentences, chosen, 1))


@pytest.mark.parametrize("chosen", [CHOICES[0], CHOICES[4]])
def test_a_batch_of_more_rows_than_the_lists_have_slots_is_read_in_parts(
    chosen: ScanSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_pass, "CANDIDATE_SLOTS", 3 * 7)
    rising = [Reading(n, [1, 2], torch.full((3, 3), float(n + 1))) for n in range(40)]
    layer = LayerScan(3, chosen, DEVICE)
    assert_same(scanned(layer, rising, 20), brute_force(rising, chosen, 1))


def test_layers_wider_than_a_block_of_the_kernel_are_read_whole() -> None:
    chosen, wide = ScanSettings(top=2, sample=1), triton_pass.BLOCK + 5
    sentences = readings(torch.Generator().manual_seed(3), 6, wide, longest=3)
    found = scanned(LayerScan(wide, chosen, DEVICE), sentences, 3)
    assert_same(found, brute_force(sentences, chosen, 1))


@pytest.mark.parametrize("chosen", [CHOICES[0], CHOICES[5]])
def test_a_state_taken_before_stays_as_it_was_and_a_scan_goes_on_from_it(
    chosen: ScanSettings,
) -> None:
    sentences = readings(torch.Generator().manual_seed(6), 40, MEMORIES)
    layer = LayerScan(MEMORIES, chosen, DEVICE)
    before = scanned(layer, sentences[:20], 10)
    other = LayerScan(MEMORIES, chosen, DEVICE)
    other.resume(before)
    for resumed in (layer, other):
        whole = scanned(resumed, sentences[20:], 10)
        assert_same(whole, brute_force(sentences, chosen, 1))
    assert_same(before, brute_force(sentences[:20], chosen, 1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_kernel_stops_at_coefficients_that_are_not_finite(bad: float) -> None:
    good = Reading(0, [1, 2, 3], torch.ones(4, 2))
    m = torch.ones(4, 2)
    m[2, 1] = bad
    layer = LayerScan(2, ScanSettings(), DEVICE)
    scanned(layer, [good], 1)
    with pytest.raises(ScanError, match="bfloat16 or float32"):
        scanned(layer, [Reading(1, [1, 2, 3], m)], 1)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_counts_the_census_in_bins_as_the_plain_pass_does(
    signed: bool, dtype: torch.dtype
) -> None:
    chosen = ScanSettings(top=3, sample=2, signed=signed)
    sentences = far_readings(torch.Generator().manual_seed(5), 200, 140)
    by_kernel = LayerScan(140, chosen, DEVICE)
    plain = LayerScan(140, chosen, DEVICE, use_kernel=False)
    assert by_kernel.uses_kernel
    assert not plain.uses_kernel
    found = scanned(by_kernel, sentences, 30, dtype).tallies.histogram
    expected = scanned(plain, sentences, 30, dtype).tallies.histogram
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)
    assert torch.equal(found, brute_force(sentences, chosen, 1).tallies.histogram)


EXPERTS, SIZE = 4, 20


def feed(layer: LayerScan, m: Tensor, batch: FakeBatch, shared: int) -> None:
    """A dense table of coefficients as a mixture: lines of the experts whose are not all 0."""
    table = m[..., : EXPERTS * SIZE].unflatten(-1, (EXPERTS, SIZE)).flatten(0, 1)
    expert, place = table.any(-1).T.nonzero(as_tuple=True)
    lines = table[place, expert].to(DEVICE)
    weights = (place * 7 + expert * 3) % 16 / 16
    routed = RoutedCoefficients(
        lines, weights.to(DEVICE), lines, expert.to(DEVICE), place.to(DEVICE)
    )
    beside = [m[..., EXPERTS * SIZE :].to(DEVICE)] if shared else []
    layer.take_in_mixture(routed, beside, batch)


def mixture_state(
    sentences: list[Reading],
    chosen: ScanSettings,
    shared: int = 0,
    use_kernel: bool = True,
    dtype: torch.dtype = torch.float32,
) -> LayerState:
    memories = EXPERTS * SIZE + shared
    layer = LayerScan(memories, chosen, DEVICE, use_kernel=use_kernel, expert_size=SIZE)
    assert layer.uses_kernel == use_kernel
    for start in range(0, len(sentences), 9):
        feed(layer, *batched(sentences[start : start + 9], 1, 2, dtype), shared)
    return layer.state().to("cpu")


def routed_readings(count: int, shared: int, chosen: int = 2) -> list[Reading]:
    """Sentences with a few experts at every place, so that the others' coefficients are 0."""
    generator = torch.Generator().manual_seed(count + shared)
    found = []
    for sentence in readings(generator, count, EXPERTS * SIZE + shared, longest=9):
        picked = torch.rand(len(sentence.m), EXPERTS, generator=generator).argsort(1)[:, :chosen]
        on = torch.zeros(len(sentence.m), EXPERTS).scatter(1, picked, 1.0)
        on = torch.cat([on.repeat_interleave(SIZE, 1), torch.ones(len(on), shared)], 1)
        found.append(replace(sentence, m=sentence.m * on))
    return found


@pytest.mark.parametrize("chosen", CHOICES)
@pytest.mark.parametrize("shared", [0, 5])
def test_experts_are_read_as_brute_force_reads_a_table_with_zeros(
    chosen: ScanSettings, shared: int
) -> None:
    sentences = routed_readings(30, shared)
    by_kernel = mixture_state(sentences, chosen, shared)
    plain = mixture_state(sentences, chosen, shared, use_kernel=False)
    assert_same(by_kernel, brute_force(sentences, chosen, 1))
    assert by_kernel.triggers.weights is not None
    assert plain.triggers.weights is not None
    assert torch.equal(by_kernel.triggers.weights, plain.triggers.weights)
    for name in ("routed", "weights", "histogram"):
        assert torch.equal(getattr(by_kernel.tallies, name), getattr(plain.tallies, name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_experts_are_read_in_half_precision(dtype: torch.dtype) -> None:
    chosen = ScanSettings(top=4, sample=3, signed=True)
    sentences = routed_readings(40, 0)
    assert_same(mixture_state(sentences, chosen, dtype=dtype), brute_force(sentences, chosen, 1))


def test_experts_with_more_candidates_than_room_lose_none() -> None:
    chosen = ScanSettings(top=1, sample=0, signed=True)  # room for one candidate per cell
    size = EXPERTS * SIZE
    rising = [Reading(n, [1, 2], torch.full((3, size), float(n + 1))) for n in range(40)]
    assert_same(mixture_state(rising, chosen), brute_force(rising, chosen, 1))
