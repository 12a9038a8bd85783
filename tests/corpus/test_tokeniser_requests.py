"""A process beside this one tokenises shards as this one would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ffmem.corpus.sentences import SentenceSettings, tokenise
from ffmem.corpus.shards import Shard
from ffmem.corpus.tokeniser_processes import TokeniserProcess
from ffmem.errors import CorpusError


def test_the_same_sentences_and_the_same_errors(tokenizer: Any) -> None:
    settings = SentenceSettings(splitter="line", max_tokens=5)
    tokeniser = TokeniserProcess(tokenizer, settings)
    try:
        for number, text in ((3, "I love dogs\nthe cat sat"), (4, "Zoë möchte 日本語")):
            shard = Shard(number, [text])
            expected, found = tokenise(shard, tokenizer, settings), tokeniser.tokenise(shard)
            assert found.texts == expected.texts
            for name in ("numbers", "tokens", "starts", "token_ends"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        with pytest.raises(AttributeError):
            tokeniser.tokenise(None)  # type: ignore[arg-type]
        assert len(tokeniser.tokenise(Shard(5, ["river"]))) == len(
            tokenise(Shard(5, ["river"]), tokenizer, settings)
        )
    finally:
        tokeniser.close()


def test_a_process_that_died_is_one_sentence(tokenizer: Any) -> None:
    tokeniser = TokeniserProcess(tokenizer, SentenceSettings())
    tokeniser._child._process.kill()
    tokeniser._child._process.wait()  # so that what it is sent next stays in the pipe's buffer
    with pytest.raises(CorpusError, match="ended early"):
        tokeniser.tokenise(Shard(0, ["river"]))
    tokeniser.close()
    assert tokeniser._child._process.stdout.closed  # type: ignore[union-attr]
