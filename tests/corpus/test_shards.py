from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffmem.corpus import shards as module
from ffmem.corpus.shards import pieces, shards, weight
from ffmem.corpus.splitters import SPLITTERS


@pytest.fixture(autouse=True, scope="module")
def _small_shards() -> Iterator[None]:
    """Shards of 64 bytes and 8 marks, so that short texts fill several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARD_BYTES", 64)
        patch.setattr(module, "SHARD_MARKS", 8)
        yield


TEXT = st.builds(str.__mul__, st.text(min_size=1, max_size=20), st.integers(1, 40))
DOCUMENTS = st.lists(TEXT)


@given(DOCUMENTS)
def test_no_text_is_lost_and_every_shard_keeps_to_its_size(documents: list[str]) -> None:
    found = list(shards(documents))
    assert "".join(text for shard in found for text in shard.documents) == "".join(documents)
    assert [shard.number for shard in found] == list(range(len(found)))
    for shard in found:
        sizes, marks = zip(*(weight(text) for text in shard.documents), strict=True)
        assert sum(sizes) <= 64
        assert sum(marks) <= 8


@given(DOCUMENTS)
def test_the_cut_is_the_same_however_the_documents_arrive(documents: list[str]) -> None:
    assert list(shards(iter(documents))) == list(shards(tuple(documents)))


@given(DOCUMENTS, TEXT)
def test_what_comes_later_does_not_change_closed_shards(documents: list[str], more: str) -> None:
    before = list(shards(documents))
    after = list(shards([*documents, more]))
    assert after[: max(0, len(before) - 1)] == before[:-1]


@given(TEXT)
def test_the_marks_bound_the_sentences_of_a_piece(text: str) -> None:
    for piece in pieces(text):
        for name in ("rule", "line", "none"):
            assert len(SPLITTERS[name](piece)) <= weight(piece)[1]


def test_a_long_document_is_cut_at_a_line_else_a_sentence_else_a_word() -> None:
    assert next(pieces("a b. c\n" + "d" * 100)) == "a b. c\n"
    assert next(pieces("a b. c " + "d" * 100)) == "a b. "
    assert next(pieces("a b c " + "d" * 100)) == "a b c "
    assert next(pieces("d" * 100)) == "d" * 64


def test_a_document_of_one_shard_stays_whole() -> None:
    assert list(pieces("a\n" * 3)) == ["a\n" * 3]
    assert list(pieces("é" * 32)) == ["é" * 32]
