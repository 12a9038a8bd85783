"""Rows in few bits against the arrays they were made of, to the bit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ffmem.execution.run import run_scan
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.scan.settings import ScanSettings
from ffmem.store.bit_rows import HEAD, TOGETHER, WORD, BitRows, pack
from ffmem.store.folder import StudyFolder
from ffmem.store.scan_store import SLOTS, ScanStore
from ffmem.store.scan_writer import NO_SENTENCE, write_array
from tests.execution.small_scans import plan_for, sentences


def bits_of(array: NDArray[Any]) -> int:
    """Bits of a number, by the length of the packed bytes; 8 rows of 8 columns fill whole bytes."""
    assert array.shape == (8, 8)
    return (len(pack(array)) - HEAD.itemsize - WORD) // 8


def same(one: Any, other: NDArray[Any]) -> None:
    """Equal to the bit, also where numbers are -0 or not a number."""
    found = np.asarray(one)
    assert (found.dtype, found.shape) == (other.dtype, other.shape)
    assert found.tobytes() == other.tobytes()


def coefficients(kind: torch.dtype, rows: int, slots: int, seed: int) -> NDArray[np.float32]:
    """Coefficients that a model computed in a type, strongest first, with ties, some unfilled."""
    draw = torch.Generator().manual_seed(seed)
    found = torch.randn(rows, slots, generator=draw).exp().to(kind).float()
    found = found.sort(dim=1, descending=True).values
    found[:, 1::3] = found[:, : slots - 1 : 3][:, : len(range(1, slots, 3))]  # ties
    found[::5, slots // 2 :] = 0.0
    return found.numpy()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("rows", "slots"), [(1, 1), (7, 50), (64, 32), (TOGETHER + 3, 3)])
def test_coefficients_come_back_to_the_bit(kind: torch.dtype, rows: int, slots: int) -> None:
    array = coefficients(kind, rows, slots, rows)
    same(BitRows(pack(array)), array)


def test_few_bits_are_taken_only_where_nothing_is_lost() -> None:
    """One coefficient that bfloat16 cannot hold makes all of them longer."""
    array = coefficients(torch.bfloat16, 8, 8, 1)
    assert bits_of(array) <= 16
    array[3, 2] = np.nextafter(array[3, 2], np.float32(9))
    assert bits_of(array) > 16
    same(BitRows(pack(array)), array)
    half = coefficients(torch.float16, 8, 8, 1)
    assert bits_of(half) <= 16


@pytest.mark.parametrize("largest", [0, 1, 254, 255, 256, 65_535, 2**24, 2**31, NO_SENTENCE - 1])
def test_sentences_come_back_up_to_the_largest_number(largest: int) -> None:
    draw = np.random.default_rng(largest)
    array = draw.integers(0, largest + 1, (40, 13), dtype=np.uint32)
    array[draw.random(array.shape) < 0.3] = NO_SENTENCE
    array[0, :2] = largest, NO_SENTENCE
    found = BitRows(pack(array, NO_SENTENCE))
    same(found, array)
    assert (found[0] != NO_SENTENCE).tolist() == (array[0] != NO_SENTENCE).tolist()


@pytest.mark.parametrize("bits", range(1, 17))
def test_a_number_takes_the_bits_of_the_range(bits: int) -> None:
    array = np.zeros((8, 8), np.uint16)
    array[1, 1], array[2, 2] = 1, 2**bits - 1
    assert bits_of(array) == bits
    same(BitRows(pack(array)), array)
    if bits < 16:
        array[2, 2] += 1
        assert bits_of(array) == bits + 1
        same(BitRows(pack(array)), array)


ANY = {"<f4": 2**32, "<u4": 2**32, "<u2": 2**16, "<f2": 2**16, "<u8": 2**56}


@given(st.data())
def test_any_bits_come_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(ANY)))
    rows, columns = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    size, whole = rows * columns, st.integers(0, ANY[kind] - 1)
    spread = data.draw(st.sampled_from([1, 8, 1 << 13, ANY[kind] // 4]))
    near = st.integers(0, 3).map(lambda times: times * spread)  # alike in their last bits
    numbers = data.draw(
        st.lists(data.draw(st.sampled_from([whole, near])), min_size=size, max_size=size)
    )
    array = np.array(numbers, f"<u{np.dtype(kind).itemsize}").reshape(rows, columns).view(kind)
    nothing = data.draw(st.sampled_from([0, *numbers]))
    same(BitRows(pack(array, nothing)), array)


WHERE = [
    0,
    -1,
    np.int64(5),
    slice(3, 4),
    slice(None),
    slice(2, 4000, 7),
    slice(9, 2),
    slice(10, 2, -1),
    [7, 3, 3, 0],
    [],
    np.array([4, -2]),
    np.arange(TOGETHER + 5)[::-1],
    np.arange(TOGETHER + 5) % 3 == 1,
    (slice(None), 0),
    (5, slice(None, 2)),
    (slice(5, 6), slice(None, 2)),
    ([5, 6], slice(1, None)),
    (slice(0, TOGETHER + 2), slice(None, 2)),
    (4, 1),
]


@pytest.mark.parametrize("where", WHERE, ids=range(len(WHERE)))
@pytest.mark.parametrize("bits", [5, 23])
def test_it_is_read_like_the_array(where: Any, bits: int) -> None:
    array = np.random.default_rng(0).integers(0, 2**bits, (TOGETHER + 5, 5), dtype=np.uint32)
    same(BitRows(pack(array))[where], array[where])


def test_the_same_numbers_have_the_same_bytes() -> None:
    """In whatever memory they lie."""
    array = coefficients(torch.float16, 9, 7, 3)
    assert pack(np.asfortranarray(array)).tobytes() == pack(array.copy()).tobytes()


@pytest.mark.parametrize("change", [slice(None, -1), slice(None, 30), slice(0, 0)])
def test_bytes_that_are_cut_are_refused(change: slice) -> None:
    data = pack(coefficients(torch.float32, 8, 8, 2))
    with pytest.raises(ValueError, match="."):
        BitRows(data[change])


@pytest.mark.parametrize("place", range(8, HEAD.itemsize - 16))
def test_a_head_with_a_length_that_does_not_fit_is_refused(place: int) -> None:
    """Rows, columns, bits; a shift above those of a word."""
    data = pack(coefficients(torch.float32, 8, 8, 2))
    data[place] ^= 0x80
    with pytest.raises(ValueError, match="cannot hold"):
        BitRows(data)


PACKED = [
    *(f"{kind}_{name}" for kind in ("trigger", "sample") for name in SLOTS),
    "histogram",
]


def scan_of(kind: str, out: Path, dtype: torch.dtype = torch.float32) -> ScanStore:
    """A scan of a toy in which no cell fills its triggers."""
    corpus = out / "corpus.txt"
    corpus.write_text("\n".join(sentences(30)) + "\n")
    model = wrap(tiny_model(kind).to(dtype), tiny_tokenizer())
    settings = ScanSettings(top=40, sample=8, signed=model.gated)
    return run_scan(model, plan_for(model, corpus, settings=settings), out / "scan")


@pytest.fixture(scope="module", params=["llama", "deepseek_v3"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ScanStore:
    return scan_of(request.param, tmp_path_factory.mktemp(request.param))


def plain_copy(store: ScanStore, out: Path) -> ScanStore:
    """The same scan with plain arrays."""
    folder = StudyFolder(Path(shutil.copytree(store.folder.root, out)))
    files = dict(store.manifest.files)
    for name in PACKED + ["trigger_weights"] * store.has("trigger_weights"):
        files |= write_array(folder, name, np.asarray(store.array(name)))
    files |= write_array(folder, "fires", store.array("fires").astype(np.int64))
    replace(store.manifest, files=files).write(folder)
    return ScanStore.open(out)


def test_a_store_in_few_bits_is_read_as_one_of_plain_arrays(
    store: ScanStore, tmp_path: Path
) -> None:
    plain = plain_copy(store, tmp_path / "plain")
    assert not isinstance(plain.array("trigger_sentences"), BitRows)
    assert isinstance(store.array("trigger_sentences"), BitRows)
    for cell in store.cells.addresses(range(0, store.cells.count, 5)):
        assert list(plain.triggers(cell)) == list(store.triggers(cell))
        assert list(plain.triggers(cell, "sample")) == list(store.triggers(cell, "sample"))
        assert plain.histogram(cell) == store.histogram(cell)
        assert plain.counts(cell) == store.counts(cell)
    sizes = [sum(one.bytes for one in each.manifest.files.values()) for each in (store, plain)]
    assert sizes[0] < sizes[1]


def test_a_model_in_bfloat16_has_coefficients_of_few_bits(tmp_path: Path) -> None:
    found = scan_of("llama", tmp_path, torch.bfloat16)
    strength = np.asarray(found.array("trigger_coefficients"))
    assert (strength == torch.tensor(strength).bfloat16().float().numpy()).all()
    size = found.manifest.files["arrays/trigger_coefficients.npy"].bytes
    assert size < 2 * strength.size < strength.nbytes
