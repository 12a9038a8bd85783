"""Text made ready in other processes is what one thread makes of it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from ffmem.corpus import child_process
from ffmem.corpus.sentences import (
    CorpusRequest,
    SentenceSettings,
    TokenisedShard,
    join_parts,
    tokenise,
    tokenise_corpus,
)
from ffmem.corpus.shards import Shard
from ffmem.corpus.sources import Source
from ffmem.corpus.tokeniser_processes import can_tokenise_elsewhere, tokenise_in_processes
from ffmem.errors import CorpusError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text of three shards and a bit: short lines, as marks close a shard too."""
    draw = random.Random(0)
    words = ["cat", "mat.", "Zoë", "Brötchen;", "là", "日本語です。", "two dogs"]
    lines = (draw.choice(words) for _ in range(60_000))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def reading(path: Path, first: int = 0) -> CorpusRequest:
    return CorpusRequest(Source(str(path)), SentenceSettings(max_tokens=40), first)


def assert_same(found: list[TokenisedShard], expected: list[TokenisedShard]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.sentences.texts == other.sentences.texts
        for name in ("numbers", "tokens", "starts", "token_ends"):
            np.testing.assert_array_equal(
                getattr(one.sentences, name), getattr(other.sentences, name)
            )
        assert one.share is not None
        assert other.share is not None


@pytest.mark.parametrize(("processes", "first"), [(1, 1), (2, 0), (3, 1)])
def test_the_same_shards_come_in_the_same_order(
    processes: int, first: int, corpus: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    wanted = reading(corpus, first)
    expected = list(tokenise_corpus(wanted, tokenizer))
    assert len(expected) >= 3 - first
    assert_same(list(tokenise_in_processes(wanted, tokenizer, processes)), expected)


@pytest.mark.parametrize("documents", [["One. Two."], ["a", "b"], ["a " * 900, "b", "c", "d"]])
def test_parts_of_a_shard_are_the_shard(
    documents: list[str], tokenizer: PreTrainedTokenizerFast
) -> None:
    shard, settings = Shard(5, documents), SentenceSettings(max_tokens=40)
    pieces = [shard.part(turn, 3) for turn in range(3)]
    assert [document for piece in pieces for document in piece.documents] == documents
    parts = [TokenisedShard(tokenise(piece, tokenizer, settings), 0.5) for piece in pieces]
    whole = TokenisedShard(tokenise(shard, tokenizer, settings), 0.5)
    assert_same([join_parts(5, parts)], [whole])


def test_parts_that_cannot_be_numbered_together_are_refused(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.corpus.sentences.SHARD_SENTENCES", 3)
    shard, settings = Shard(0, ["One.", "Two.", "Three.", "Four."]), SentenceSettings()
    parts = [
        TokenisedShard(tokenise(shard.part(turn, 2), tokenizer, settings), None) for turn in (0, 1)
    ]
    with pytest.raises(CorpusError, match="shard 0 has 4 sentences and 3 is the most"):
        join_parts(0, parts)


def test_trouble_over_there_is_raised_here(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good line\n\xff\xfe\n")
    with pytest.raises(CorpusError, match=r"bad.txt line 2 is not valid UTF-8"):
        list(tokenise_in_processes(reading(tmp_path / "bad.txt"), tokenizer, 2))


def test_a_reader_that_stops_early_leaves_no_process(
    corpus: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    real = child_process.subprocess.Popen

    def noted(*given: object, **options: object) -> object:
        started.append(real(*given, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(child_process.subprocess, "Popen", noted)
    shards = tokenise_in_processes(reading(corpus), tokenizer, 2)
    next(shards)
    shards.close()  # type: ignore[attr-defined]
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_process_that_dies_is_one_sentence(
    corpus: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(child_process, "command", lambda _serve: dies)
    with pytest.raises(CorpusError, match=r"ended early \(exit code 3\)"):
        list(tokenise_in_processes(reading(corpus), tokenizer, 1))


def test_standard_input_stays_here(tokenizer: PreTrainedTokenizerFast, corpus: Path) -> None:
    assert can_tokenise_elsewhere(reading(corpus), tokenizer)
    assert not can_tokenise_elsewhere(CorpusRequest(Source("-"), SentenceSettings()), tokenizer)
