"""A process that tokenises the shards it is given, for one that is busy feeding a GPU.

As in apart.py, but for a process that does not read the corpus itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from ffmem.corpus.sentences import Sentences, SentenceSettings, backend_of, tokenise
from ffmem.corpus.shards import Shard
from ffmem.errors import CorpusError

COMMAND = [
    sys.executable,
    "-P",
    "-c",
    "from ffmem.corpus.tokeniser_process import serve_requests; serve_requests()",
]


class TokeniserProcess:
    """Tokenises as `tokenise` does; may be asked by several threads, one after the other.

    The process ends when this one does, because nobody writes to it any more.
    """

    def __init__(self, tokenizer: Any, settings: SentenceSettings) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the scan
        )
        self._turn = threading.Lock()
        self._send((backend_of(tokenizer).to_str(), settings))

    def tokenise(self, shard: Shard) -> Sentences:
        """The shard's sentences; trouble over there is raised here."""
        with self._turn:
            try:
                self._send(shard)
                found = pickle.load(self._process.stdout)  # type: ignore[arg-type]
            except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
                raise CorpusError(
                    f"the process that prepares text ended early (exit code "
                    f"{self._process.wait()}), perhaps for want of memory; run it again to go on"
                ) from error
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the process; one that is dead already cannot take what is left in its pipe."""
        self._process.kill()
        with suppress(BrokenPipeError), self._process:
            pass

    def _send(self, what: object) -> None:
        assert self._process.stdin is not None
        pickle.dump(what, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()


def serve_requests() -> None:
    """What such a process does until nobody asks any more."""
    from tokenizers import Tokenizer  # slow to import, and only needed here

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up among the answers
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
        pickle.dump(found, out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()
