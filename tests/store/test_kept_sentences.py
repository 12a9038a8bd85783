import random

import numpy as np
import pytest

from ffmem.corpus.sentences import Sentences, SentenceSettings, tokenise
from ffmem.corpus.shards import Shard
from ffmem.models.tiny import tiny_tokenizer
from ffmem.store.kept_sentences import SPAN, KeptSentences

LINES = ["I love dogs", "naïve café", "日本語です", "a", "the river runs to the sea", "z" * 30]


def shard(number: int) -> Sentences:
    settings = SentenceSettings(splitter="line")
    return tokenise(
        Shard(number, [f"{line} {number}" for line in LINES]), tiny_tokenizer(), settings
    )


def test_kept_sentences_are_those_that_were_asked_for() -> None:
    draw = random.Random(0)
    shards = [shard(number) for number in (0, 1, 5)]
    every = {int(n): (s, row) for s in shards for row, n in enumerate(s.numbers)}
    for _ in range(20):
        wanted = np.array(sorted(draw.sample(sorted(every), k=draw.randint(0, 12))), dtype=np.int64)
        parts = [KeptSentences.of(s).only(wanted) for s in shards]
        draw.shuffle(parts)
        kept = KeptSentences.join(parts)
        assert kept.numbers.tolist() == wanted.tolist()
        for number in wanted.tolist():
            source, row = every[number]
            found = kept.row(number)
            assert kept.sentence(found) == source.texts[row]
            assert kept.token_ids(found).tolist() == source.token_ids(row).tolist()


def test_many_sentences_are_found_by_their_numbers_like_single_ones() -> None:
    kept = KeptSentences.of(shard(1)).only(shard(1).numbers[[0, 2, 5]])
    first = int(kept.numbers[0])
    few = kept.numbers[[2, 0, 1, 1]].astype(np.uint32)
    spread = KeptSentences.join([kept, KeptSentences.of(shard(900))])  # too far for a table
    for times in (1, SPAN, 5 * SPAN):
        many = np.tile(few, times)
        for sentences in (kept, spread):
            found = sentences.rows(many)
            assert found.tolist() == [sentences.row(number) for number in many.tolist()]
            for wrong in (first - 1, first + 1, first + 6, 0):
                with pytest.raises(KeyError, match=str(wrong)):
                    sentences.rows(np.append(many, np.uint32(wrong)))


def test_the_four_pieces_of_a_place_join_to_the_sentence() -> None:
    source = shard(0)
    kept = KeptSentences.of(source)
    for row in range(len(source)):
        positions = np.arange(len(source.token_ids(row)) + 1)
        pieces = kept.around(np.full(len(positions), row), positions)
        for position, (before, last, after, rest) in zip(positions.tolist(), pieces, strict=True):
            assert before + last + after + rest == source.texts[row]
            assert before + last == source.prefix(row, position)
            assert before + last + after == source.prefix(row, min(position + 1, len(pieces) - 1))
