"""A process beside this one tokenises shards as this one would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ffmem.corpus.sentences import SentenceSettings, tokenise
from ffmem.corpus.shards import Shard
from ffmem.corpus.tokeniser_process import TokeniserProcess
from ffmem.errors import CorpusError


def test_the_same_sentences_and_the_same_errors(tokenizer: Any) -> None:
    settings = SentenceSettings(splitter="line", max_tokens=5)
    beside = TokeniserProcess(tokenizer, settings)
    try:
        for number, text in ((3, "I love dogs\nthe cat sat"), (4, "Zoë möchte 日本語")):
            shard = Shard(number, [text])
            expected, found = tokenise(shard, tokenizer, settings), beside.tokenise(shard)
            assert found.texts == expected.texts
            for name in ("numbers", "tokens", "starts", "token_ends"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        with pytest.raises(AttributeError):
            beside.tokenise(None)  # type: ignore[arg-type]
        assert len(beside.tokenise(Shard(5, ["river"]))) == len(
            tokenise(Shard(5, ["river"]), tokenizer, settings)
        )
    finally:
        beside.close()


def test_a_process_that_dies_is_one_sentence(tokenizer: Any) -> None:
    beside = TokeniserProcess(tokenizer, SentenceSettings())
    beside._process.kill()
    beside._process.wait()  # so that what it is sent next stays in the pipe's buffer
    with pytest.raises(CorpusError, match="ended early"):
        beside.tokenise(Shard(0, ["river"]))
    beside.close()
    assert beside._process.stdout.closed  # type: ignore[union-attr]
