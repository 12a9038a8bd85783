import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ffmem.corpus.shards import POSITIONS, sentence_and_position, sentence_number

SHARDS = st.integers(0, 2**30 - 1)
SIXTEEN_BITS = st.integers(0, 2**16 - 1)


@given(SHARDS, SIXTEEN_BITS, SIXTEEN_BITS)
def test_a_place_gives_back_what_it_was_made_of(shard: int, row: int, position: int) -> None:
    sentence = sentence_number(shard, row)
    place = sentence * POSITIONS + position
    assert sentence_and_position(place) == (sentence, position)
    assert divmod(sentence, 2**16) == (shard, row)
    assert 0 <= place < 2**62


@given(st.lists(st.tuples(SHARDS, SIXTEEN_BITS, SIXTEEN_BITS), min_size=1))
def test_arrays_and_tensors_count_as_ints_do(parts: list[tuple[int, int, int]]) -> None:
    sentences = [sentence_number(shard, row) for shard, row, _ in parts]
    positions = [position for _, _, position in parts]
    places = [s * POSITIONS + p for s, p in zip(sentences, positions, strict=True)]
    for found in (np.array(places), torch.tensor(places)):
        assert [part.tolist() for part in sentence_and_position(found)] == [sentences, positions]


def test_places_sort_by_sentence_and_then_by_position() -> None:
    order = [(0, 0), (0, 5), (1, 0), (1, 65_535), (65_536, 2)]
    places = [sentence * POSITIONS + position for sentence, position in order]
    assert places == sorted(places)
