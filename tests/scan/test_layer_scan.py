"""Laws of a layer's running state."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ffmem.corpus.shards import EMPTY
from ffmem.errors import ScanError
from ffmem.scan.hashing import NO_PRIORITY, census_factors, priorities
from ffmem.scan.launch_queue import LaunchQueue
from ffmem.scan.layer_scan import LayerScan, LayerState
from ffmem.scan.passes import torch_pass
from ffmem.scan.settings import ALL, RAREST, ScanSettings
from tests.scan.brute_force import (
    Reading,
    assert_same,
    batched,
    brute_force,
    far_readings,
    readings,
    with_content,
)

MEMORIES = 5

scan_settings = st.builds(
    ScanSettings,
    top=st.integers(1, 6),
    sample=st.integers(0, 5),
    per_sentence=st.sampled_from(["max", "all"]),
    min_prefix=st.integers(0, 3),
    include_final=st.booleans(),
    dedupe=st.sampled_from(["none", "sentence", "prefix"]),
    signed=st.booleans(),
    seed=st.integers(0, 5),
)


def split(sentences: list[Reading], size: int, by_length: bool) -> list[list[Reading]]:
    if by_length:
        sentences = sorted(sentences, key=lambda s: len(s.tokens))
    return [sentences[i : i + size] for i in range(0, len(sentences), size)]


def seen(layer: LayerScan, batches: list[list[Reading]], bos: int, padding: int = 0) -> LayerState:
    for sentences in batches:
        layer.take_in(*batched(sentences, bos, padding))
    return layer.state()


@settings(max_examples=80, deadline=None)
@given(
    chosen=scan_settings,
    seed=st.integers(0, 1000),
    size=st.integers(1, 12),
    shape=st.tuples(st.integers(0, 1), st.integers(0, 2)),
    order=st.sampled_from(["by length", "as they come", "by length, folded often"]),
    how=st.tuples(st.booleans(), st.booleans()),
)
def test_seeing_batches_of_any_size_order_and_padding_gives_what_brute_force_gives(
    chosen: ScanSettings,
    seed: int,
    size: int,
    shape: tuple[int, int],
    order: str,
    how: tuple[bool, bool],
) -> None:
    bos, padding = shape
    compiled, in_template = how
    generator = torch.Generator().manual_seed(seed)
    sentences = readings(generator, 20, MEMORIES)
    if in_template:
        sentences = with_content(sentences, generator)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(torch_pass, "compiled_loop", lambda: None)
        layer = LayerScan(MEMORIES, chosen)
        for piece in split(sentences, size, order != "as they come"):
            layer.take_in(*batched(piece, bos, padding))
            if order == "by length, folded often":
                layer.state()  # raises the thresholds, so that more is turned away early
    assert_same(layer.state(), brute_force(sentences, chosen, bos))


@pytest.mark.parametrize("threads", [1, 3])
def test_long_sentences_and_many_threads_give_what_brute_force_gives(threads: int) -> None:
    chosen = ScanSettings(top=4, sample=3, signed=True)
    sentences = readings(torch.Generator().manual_seed(7), 40, MEMORIES, longest=23)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = seen(LayerScan(MEMORIES, chosen), split(sentences, 7, True), bos=1)
    finally:
        torch.set_num_threads(before)
    assert_same(found, brute_force(sentences, chosen, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("signed", [False, True])
def test_many_rows_at_once_give_what_brute_force_gives(dtype: torch.dtype, signed: bool) -> None:
    chosen = ScanSettings(top=4, sample=3, signed=signed)
    sentences = readings(torch.Generator().manual_seed(5), 400, MEMORIES)
    layer = LayerScan(MEMORIES, chosen)
    for piece in split(sentences, 150, True):
        layer.take_in(*batched(piece, 1, 1, dtype))
    assert_same(layer.state(), brute_force(sentences, chosen, 1))


def test_coefficients_may_come_with_rows_and_columns_as_one() -> None:
    sentences = readings(torch.Generator().manual_seed(1), 9, MEMORIES)
    m, batch = batched(sentences, 1, 0)
    layer = LayerScan(MEMORIES, ScanSettings(top=3))
    layer.take_in(m.flatten(0, 1), batch)
    assert_same(layer.state(), brute_force(sentences, ScanSettings(top=3), 1))


@pytest.mark.parametrize("include_final", [False, True])
@pytest.mark.parametrize("min_prefix", [0, 1, 2])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_sentence_of_n_tokens_has_the_prefixes_it_should(
    n: int, min_prefix: int, include_final: bool
) -> None:
    chosen = ScanSettings(
        top=9, per_sentence="all", min_prefix=min_prefix, include_final=include_final
    )
    m = torch.arange(1.0, n + 2)[:, None]
    layer = LayerScan(1, chosen)
    state = seen(layer, [[Reading(4, [1] * n, m)]], bos=1)
    last = n if include_final else n - 1
    expected = [4 * 65_536 + p for p in range(last, min_prefix - 1, -1)]
    found = state.triggers.places[0]
    assert found[found != EMPTY].tolist() == expected
    assert state.tallies.prefixes == len(expected)


def test_of_equal_coefficients_the_earliest_place_is_kept() -> None:
    m = torch.ones(5, 1)
    sentences = [Reading(number, [1, 2, 3, 4], m) for number in (9, 2, 7, 4)]
    state = seen(LayerScan(1, ScanSettings(top=3)), [[s] for s in sentences], bos=1)
    assert state.triggers.places[0].tolist() == [n * 65_536 + 1 for n in (2, 4, 7)]


def test_zeros_never_enter_and_dead_cells_stay_empty() -> None:
    m = torch.tensor([[0.0, -1.0, 0.5]]).repeat(4, 1)
    state = seen(LayerScan(3, ScanSettings(top=2)), [[Reading(0, [1, 2, 3], m)]], bos=1)
    assert state.triggers.slot_counts.tolist() == [0, 0, 1]
    assert (state.sample.places[:2] == EMPTY).all()
    assert state.tallies.fires.tolist() == [0, 0, 2]


@settings(max_examples=40, deadline=None)
@given(chosen=scan_settings, seed=st.integers(0, 1000), stop=st.integers(0, 29))
def test_resuming_a_state_gives_what_never_stopping_gives(
    chosen: ScanSettings, seed: int, stop: int
) -> None:
    batches = split(readings(torch.Generator().manual_seed(seed), 30, MEMORIES), 3, False)
    whole = seen(LayerScan(MEMORIES, chosen), batches, bos=1)
    first = seen(LayerScan(MEMORIES, chosen), batches[: stop // 3], bos=1)
    second = LayerScan(MEMORIES, chosen)
    second.resume(first)
    assert_same(seen(second, batches[stop // 3 :], bos=1), whole)


@settings(max_examples=60, deadline=None)
@given(chosen=scan_settings, seed=st.integers(0, 1000), order=st.permutations(range(5)))
def test_shards_merged_in_any_order_give_what_one_scan_gives(
    chosen: ScanSettings, seed: int, order: list[int]
) -> None:
    sentences = readings(torch.Generator().manual_seed(seed), 30, MEMORIES)
    shards = split(sentences, 6, False)
    states = [seen(LayerScan(MEMORIES, chosen), [shard], bos=1) for shard in shards]
    a, b, c, d, e = (states[i] for i in order)
    assert_same(a.merge(b).merge(c.merge(d.merge(e))), brute_force(sentences, chosen, 1))


def test_resuming_forgets_what_was_read_before() -> None:
    batches = split(readings(torch.Generator().manual_seed(6), 30, MEMORIES), 10, False)
    chosen = ScanSettings(top=3, sample=2)
    saved = seen(LayerScan(MEMORIES, chosen), batches[:1], bos=1)
    layer = LayerScan(MEMORIES, chosen)
    layer.take_in(*batched(batches[1], 1, 0))
    layer.resume(saved)
    expected = brute_force(batches[0] + batches[2], chosen, 1)
    assert_same(seen(layer, batches[2:], bos=1), expected)


def test_a_state_stays_as_it_is_when_more_is_seen() -> None:
    batches = split(readings(torch.Generator().manual_seed(3), 20, MEMORIES), 10, False)
    layer = LayerScan(MEMORIES, ScanSettings(top=3, sample=2))
    early = seen(layer, batches[:1], bos=1)
    seen(layer, batches[1:], bos=1)
    assert_same(early, brute_force(batches[0], ScanSettings(top=3, sample=2), 1))


def test_layers_that_share_work_do_not_disturb_each_other() -> None:
    chosen = ScanSettings(top=3, sample=2)
    shared = LaunchQueue(chosen)
    generator = torch.Generator().manual_seed(8)
    sentences = readings(generator, 24, 2 * MEMORIES)
    halves = (slice(0, MEMORIES), slice(MEMORIES, 2 * MEMORIES))
    layers = [LayerScan(MEMORIES, chosen, shared=shared) for _ in halves]
    for piece in split(sentences, 5, True):
        m, batch = batched(piece, 1, 0)
        for layer, half in zip(layers, halves, strict=True):
            layer.take_in(m[..., half].contiguous(), batch)
    for layer, half in zip(layers, halves, strict=True):
        own = [Reading(s.number, s.tokens, s.m[:, half]) for s in sentences]
        assert_same(layer.state(), brute_force(own, chosen, 1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_coefficients_that_are_not_finite_stop_the_scan(bad: float) -> None:
    m = torch.ones(4, 2)
    m[2, 1] = bad
    layer = LayerScan(2, ScanSettings())
    with pytest.raises(ScanError, match="bfloat16 or float32"):
        layer.take_in(*batched([Reading(0, [1, 2, 3], m)], 1, 0))


def test_what_stands_in_the_padding_does_not_matter() -> None:
    sentences = readings(torch.Generator().manual_seed(2), 12, MEMORIES)
    m, batch = batched(sentences, 1, 2)
    layer = LayerScan(MEMORIES, ScanSettings(top=3))
    layer.take_in(m.masked_fill(m == 999.0, float("nan")), batch)
    assert_same(layer.state(), brute_force(sentences, ScanSettings(top=3), 1))


def test_a_sentence_too_long_to_number_is_refused() -> None:
    batch = batched([Reading(3, [1], torch.ones(2, 1))], 1, 0)[1]
    long = type(batch)(batch.tokens, torch.tensor([65_536]), batch.sentences, 1)
    with pytest.raises(ScanError, match="sentence 3 has 65536 tokens"):
        LayerScan(1, ScanSettings()).take_in(torch.ones(1, 2, 1), long)


def test_a_state_of_another_size_is_refused() -> None:
    small = LayerScan(2, ScanSettings(top=3)).state()
    with pytest.raises(ScanError, match="resume it with the model and settings"):
        LayerScan(2, ScanSettings(top=4)).resume(small)


@pytest.mark.parametrize(
    "wrong", [{"top": 0}, {"sample": -1}, {"min_prefix": -1}, {"dedupe": "word"},
              {"per_sentence": "some"}, {"seed": -1}, {"top": 2.5}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ScanError, match=next(iter(wrong))):
        ScanSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("way", ["compiled", "plain", "half"])
def test_histograms_count_the_census_over_all_sizes_of_coefficients(
    signed: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ScanSettings(top=3, sample=2, signed=signed, include_final=True)
    sentences = far_readings(torch.Generator().manual_seed(5), 200, MEMORIES)
    if way == "plain":
        monkeypatch.setattr(torch_pass, "compiled_loop", lambda: None)
        monkeypatch.setattr(torch_pass, "BINNING_SIZE", 7 * MEMORIES)
    layer = LayerScan(MEMORIES, chosen)
    for piece in split(sentences, 30, True):
        layer.take_in(*batched(piece, 1, 1, torch.bfloat16 if way == "half" else torch.float32))
    found, expected = layer.state().tallies, brute_force(sentences, chosen, 1).tallies
    assert found.histogram is not None
    assert expected.histogram is not None
    assert torch.equal(found.histogram, expected.histogram)
    assert (expected.histogram.sum(0) > 0).sum() > 10  # bins of many sizes


def test_the_census_stands_for_all_sentences_and_for_no_seed() -> None:
    numbers = torch.arange(300_000)
    factors = census_factors(numbers)
    assert (factors[:ALL] == 1).all()
    for start in (ALL * 2**doubling for doubling in range(10)):
        part = factors[start : 2 * start]
        assert set(part.tolist()) == {0, min(2 * start // ALL, RAREST)}
        assert int(part.sum()) == pytest.approx(len(part), rel=0.3)
    others = priorities(numbers, 0)[factors > 0].double() / NO_PRIORITY
    assert float(others.mean()) == pytest.approx(0.5, abs=0.02)
