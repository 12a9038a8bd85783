import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ffmem.corpus.places import (
    place_of,
    sentence_and_position,
    sentence_number,
    shard_and_row,
)

SHARDS = st.integers(0, 2**30 - 1)
SIXTEEN_BITS = st.integers(0, 2**16 - 1)


@given(SHARDS, SIXTEEN_BITS, SIXTEEN_BITS)
def test_a_place_gives_back_what_it_was_made_of(shard: int, row: int, position: int) -> None:
    sentence = sentence_number(shard, row)
    place = place_of(sentence, position)
    assert sentence_and_position(place) == (sentence, position)
    assert shard_and_row(sentence) == (shard, row)
    assert 0 <= place < 2**62


@given(st.lists(st.tuples(SHARDS, SIXTEEN_BITS, SIXTEEN_BITS), min_size=1))
def test_arrays_and_tensors_count_as_ints_do(parts: list[tuple[int, int, int]]) -> None:
    sentences = [sentence_number(shard, row) for shard, row, _ in parts]
    positions = [position for _, _, position in parts]
    expected = [place_of(*pair) for pair in zip(sentences, positions, strict=True)]
    in_numpy = place_of(np.array(sentences), np.array(positions))
    in_torch = place_of(torch.tensor(sentences), torch.tensor(positions))
    assert in_numpy.tolist() == in_torch.tolist() == expected
    assert sentence_and_position(in_numpy)[0].tolist() == sentences
    assert sentence_and_position(in_torch)[1].tolist() == positions


def test_narrow_numbers_do_not_overflow() -> None:
    sentence, position = 70_000, 12
    expected = 70_000 * 65_536 + 12
    narrow = (
        torch.tensor([sentence], dtype=torch.int32),
        torch.tensor([position], dtype=torch.int32),
    )
    assert place_of(*narrow).tolist() == [expected]
    assert place_of(np.array([sentence], np.int32), np.array([position], np.int32)) == expected


def test_places_sort_by_sentence_and_then_by_position() -> None:
    order = [(0, 0), (0, 5), (1, 0), (1, 65_535), (65_536, 2)]
    places = [place_of(sentence, position) for sentence, position in order]
    assert places == sorted(places)
