"""Tokenisers in processes of their own, so that the thread which feeds a GPU is never held up.

Python runs one thread at a time. A thread that splits and tokenises in the model's process makes
the model wait for its turn at every step; on a GPU that costs most of the speed.
`tokenise_in_processes` reads the corpus in other processes too; a `TokeniserProcess` is sent its
shards, by a worker that does not read the corpus itself.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from ffmem.corpus.child_process import ChildProcess, answers, write
from ffmem.corpus.sentences import (
    CorpusRequest,
    Sentences,
    SentenceSettings,
    TokenisedShard,
    backend_of,
    join_parts,
    tokenise,
    tokenise_corpus,
)
from ffmem.corpus.shards import Shard
from ffmem.corpus.sources import is_stream

MOST_PROCESSES = 4  # processes; all of them read the whole text, so more soon gain nothing
CORES = 4  # for each of them: the tokenizer has threads of its own


def can_tokenise_elsewhere(request: CorpusRequest, tokenizer: Any) -> bool:
    """Whether other processes can read this: no stream, no tokenizer or chat template in Python."""
    if is_stream(request.source) or request.settings.chat:
        return False
    try:
        backend_of(tokenizer).to_str()
    except Exception:  # the library raises a bare Exception for parts it cannot write down
        return False
    return True


def tokenised_shards(
    request: CorpusRequest, tokenizer: Any, elsewhere: bool
) -> Iterator[TokenisedShard]:
    """The tokenised shards, from processes of their own where that is wanted and possible."""
    if elsewhere and can_tokenise_elsewhere(request, tokenizer):
        return tokenise_in_processes(request, tokenizer)
    return tokenise_corpus(request, tokenizer)


def tokenise_in_processes(
    request: CorpusRequest, tokenizer: Any, processes: int | None = None
) -> Iterator[TokenisedShard]:
    """The shards of `tokenise_corpus`, in the same order, from other processes.

    All of them take part in the first shard, so that it is ready soon.
    """
    count = processes or max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // CORES))
    text = backend_of(tokenizer).to_str()
    with ExitStack() as stack:
        children = [stack.enter_context(ChildProcess(_serve_shards)) for _ in range(count)]
        for turn, child in enumerate(children):
            child.send((request, text, turn, count))
        parts = [child.receive() for child in children]
        if parts[0] is None:
            return
        yield join_parts(request.first, parts)
        turn = 0
        while (found := children[turn].receive()) is not None:
            yield found
            turn = (turn + 1) % count


class TokeniserProcess:
    """Tokenises as `tokenise` does; may be asked by several threads, one after the other."""

    def __init__(self, tokenizer: Any, settings: SentenceSettings) -> None:
        self._child = ChildProcess(_serve_requests)
        self._turn = threading.Lock()
        self._child.send((backend_of(tokenizer).to_str(), settings))

    def tokenise(self, shard: Shard) -> Sentences:
        """The shard's sentences; trouble over there is raised here."""
        with self._turn:
            self._child.send(shard)
            found: Sentences = self._child.receive()
            return found

    def close(self) -> None:
        """End the process."""
        self._child.close()


def _serve_shards() -> None:
    """Main loop of a process that reads the corpus: write one shard after the other."""
    with answers() as out:
        from tokenizers import Tokenizer  # slow to import, and only needed here

        request, text, turn, count = pickle.load(sys.stdin.buffer)
        try:
            for found in tokenise_corpus(request, Tokenizer.from_str(text), turn, count):
                write(found, out)
            write(None, out)
        except BrokenPipeError:
            os._exit(0)  # nobody reads any more
        except BaseException as error:
            write(error, out)


def _serve_requests() -> None:
    """Main loop of a process that receives its shards, until its input is closed."""
    with answers() as out:
        from tokenizers import Tokenizer  # slow to import, and only needed here

        text, settings = pickle.load(sys.stdin.buffer)
        tokenizer = Tokenizer.from_str(text)
        while True:
            try:
                shard = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                found: object = tokenise(shard, tokenizer, settings)
            except Exception as error:
                found = error
            write(found, out)
