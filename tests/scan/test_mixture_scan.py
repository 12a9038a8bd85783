"""A layer of experts: each sees only what is routed to it, and nothing else about it is new."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ffmem.corpus.shards import EMPTY
from ffmem.models.experts.routing import RoutedCoefficients
from ffmem.scan.layer_scan import LayerScan, LayerState
from ffmem.scan.passes import torch_pass
from ffmem.scan.settings import ScanSettings
from tests.scan.brute_force import (
    FakeBatch,
    Reading,
    assert_same,
    batched,
    brute_force,
    readings,
    with_content,
)
from tests.scan.test_layer_scan import scan_settings, split

EXPERTS, SIZE = 4, 3


def route(sentences: list[Reading], chosen: int, generator: torch.Generator) -> list[Reading]:
    """Every place with a few experts of its own, so that the others' coefficients are 0."""
    made = []
    for sentence in sentences:
        picked = torch.rand(len(sentence.m), EXPERTS, generator=generator).argsort(1)[:, :chosen]
        on = torch.zeros(len(sentence.m), EXPERTS).scatter(1, picked, 1.0)
        on = torch.cat([on.repeat_interleave(SIZE, 1), torch.ones(len(on), 1)], 1)
        width = sentence.m.shape[1]
        made.append(replace(sentence, m=sentence.m * on[:, :width]))
    return made


def router_weight(place: Tensor, expert: Tensor) -> Tensor:
    """A weight for every place and expert, of few digits so that half precision holds it."""
    return ((place * 7 + place // 65_536 * 5 + expert * 3) % 16 + 1) / 16


def check_weights(found: LayerState) -> None:
    """Every trigger of an expert has the router's weight at its place, all others have none."""
    places, weights = found.triggers.places, found.triggers.weights
    assert weights is not None
    memory = torch.arange(len(places)) % (len(places) // (1 + (len(places) > EXPERTS * SIZE + 1)))
    expected = router_weight(places, (memory // SIZE)[:, None])
    routed = (memory < EXPERTS * SIZE)[:, None] & (places != EMPTY)
    assert torch.equal(weights.float(), expected.where(routed, 0.0))


def take_in(layer: LayerScan, m: Tensor, batch: FakeBatch, shared: int) -> None:
    """Feed a dense table of coefficients as a mixture: lines of those that are not all 0."""
    table = m[..., : EXPERTS * SIZE].unflatten(-1, (EXPERTS, SIZE)).flatten(0, 1)
    expert, place = table.any(-1).T.nonzero(as_tuple=True)
    lines = table[place, expert]
    width = batch.tokens.shape[1]
    number = batch.sentences[place // width] * 65_536 + place % width + 1 - batch.bos
    routed = RoutedCoefficients(lines, router_weight(number, expert), lines, expert, place)
    layer.take_in_mixture(routed, [m[..., EXPERTS * SIZE :]] if shared else [], batch)


def scan(
    sentences: list[Reading], chosen: ScanSettings, shape: tuple[int, int], pieces: int, shared: int
) -> LayerState:
    layer = LayerScan(EXPERTS * SIZE + shared, chosen, use_kernel=False)
    for number, piece in enumerate(split(sentences, pieces, True)):
        take_in(layer, *batched(piece, *shape), shared)
        if number % 2:
            layer.state()  # raises the thresholds
    return layer.state()


@settings(max_examples=50, deadline=None)
@given(
    chosen=scan_settings,
    seed=st.integers(0, 1000),
    pieces=st.integers(1, 12),
    shape=st.tuples(st.integers(0, 1), st.integers(0, 2)),
    routing=st.tuples(st.integers(0, EXPERTS), st.integers(0, 1)),
    how=st.tuples(st.booleans(), st.booleans()),
)
def test_experts_keep_what_brute_force_keeps_of_a_table_with_zeros(
    chosen: ScanSettings,
    seed: int,
    pieces: int,
    shape: tuple[int, int],
    routing: tuple[int, int],
    how: tuple[bool, bool],
) -> None:
    experts, shared = routing
    compiled, in_template = how
    generator = torch.Generator().manual_seed(seed)
    sentences = route(readings(generator, 20, EXPERTS * SIZE + shared), experts, generator)
    if in_template:
        sentences = with_content(sentences, generator)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(torch_pass, "compiled_loop", lambda: None)
        found = scan(sentences, chosen, shape, pieces, shared)
    assert_same(found, brute_force(sentences, chosen, shape[0]))
    if found.tallies.prefixes:
        check_weights(found)


def test_states_of_two_halves_merge_into_that_of_the_whole() -> None:
    chosen = ScanSettings(top=4, sample=3, signed=True)
    generator = torch.Generator().manual_seed(3)
    sentences = route(readings(generator, 60, EXPERTS * SIZE + 1), 2, generator)
    one, other = (scan(half, chosen, (1, 0), 7, 1) for half in (sentences[:25], sentences[25:]))
    both, whole = one.merge(other), scan(sentences, chosen, (1, 0), 9, 1)
    assert_same(both, whole)
    assert both.tallies.routed is not None
    assert torch.equal(both.tallies.routed, whole.tallies.routed)
    layer = LayerScan(EXPERTS * SIZE + 1, chosen, use_kernel=False)
    layer.resume(one)
    for piece in split(sentences[25:], 5, True):
        take_in(layer, *batched(piece, 1, 2), 1)
    assert_same(layer.state(), whole)
    for state in (both, whole, layer.state()):
        check_weights(state)
    empty = LayerState.empty(EXPERTS * SIZE + 1, chosen)
    check_weights(empty.merge(whole))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_what_brute_force_gives(dtype: torch.dtype) -> None:
    chosen = ScanSettings(top=4, sample=3, signed=True)
    generator = torch.Generator().manual_seed(5)
    sentences = route(readings(generator, 50, EXPERTS * SIZE), 2, generator)
    layer = LayerScan(EXPERTS * SIZE, chosen, use_kernel=False)
    for piece in split(sentences, 20, True):
        take_in(layer, *batched(piece, 1, 1, dtype), 0)
    assert_same(layer.state(), brute_force(sentences, chosen, 1))
