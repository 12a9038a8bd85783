import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ffmem.corpus.batches import Batch, batches
from ffmem.corpus.sentences import Sentences
from ffmem.errors import CorpusError

BOS, PAD = 900, 901


def sentences_of(lengths: list[int]) -> Sentences:
    """Sentences of the given lengths whose tokens are all different."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = np.arange(1000, 1000 + starts[-1], dtype=np.int32)
    return Sentences(
        numbers=np.arange(7, 7 + len(lengths), dtype=np.int64),
        texts=["x" * length for length in lengths],
        tokens=tokens,
        starts=starts,
        token_ends=np.concatenate([np.arange(1, n + 1) for n in [0, *lengths]]).astype(np.int32),
        cut=np.zeros(len(lengths), np.bool_),
    )


def rows_of(batch: Batch) -> dict[int, list[int]]:
    """Each sentence's real tokens, read the way the contract says."""
    found = {}
    for row, length, number in zip(batch.tokens, batch.lengths, batch.sentences, strict=True):
        assert (row[: batch.bos] == BOS).all()
        assert (row[int(length) + batch.bos :] == PAD).all()
        found[int(number)] = row[batch.bos : int(length) + batch.bos].tolist()
    return found


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@given(LENGTHS, st.sampled_from([BOS, None]), st.integers(1, 200))
def test_every_token_comes_once_and_the_budget_holds(
    lengths: list[int], bos: int | None, budget: int
) -> None:
    sentences = sentences_of(lengths)
    found: dict[int, list[int]] = {}
    longest = []
    for batch in batches(sentences, bos, PAD, budget):
        rows = rows_of(batch)
        assert not rows.keys() & found.keys()
        found |= rows
        assert batch.tokens.numel() <= budget or len(rows) == 1
        assert batch.tokens.shape[1] == int(batch.lengths.max()) + batch.bos
        assert batch.bos == (bos is not None)
        longest.append(int(batch.lengths.max()))
    assert found == {7 + i: sentences.token_ids(i).tolist() for i in range(len(lengths))}
    assert longest == sorted(longest, reverse=True)


@given(LENGTHS)
def test_batches_are_the_same_every_time(lengths: list[int]) -> None:
    once, again = (list(batches(sentences_of(lengths), BOS, PAD, 64)) for _ in range(2))
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(once, again, strict=True))
    assert all(torch.equal(a.sentences, b.sentences) for a, b in zip(once, again, strict=True))


def test_padding_is_a_few_percent_on_lengths_like_those_of_prose() -> None:
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(3.2, 0.55, 15_000), 1, 512).astype(int).tolist()
    found = list(batches(sentences_of(lengths), BOS, PAD, 16_384))
    real = sum(lengths) + len(lengths)
    assert 1 - real / sum(batch.tokens.numel() for batch in found) < 0.03
    assert len(found) < 2.5 * real / 16_384


@given(LENGTHS.filter(lambda lengths: len(lengths) > 1))
def test_halves_hold_the_same_sentences(lengths: list[int]) -> None:
    for batch in batches(sentences_of(lengths), BOS, PAD, 10_000):
        if len(batch.lengths) > 1:
            first, second = batch.halves()
            assert rows_of(first) | rows_of(second) == rows_of(batch)
            assert abs(len(first.lengths) - len(second.lengths)) <= 1


def test_one_sentence_that_does_not_fit_is_said_so() -> None:
    (batch,) = batches(sentences_of([5]), BOS, PAD, 64)
    with pytest.raises(CorpusError, match="one sentence of 5 tokens does not fit"):
        batch.halves()
