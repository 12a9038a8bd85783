"""Text made ready in processes of its own, so that the thread which feeds a GPU is never held up.

Python runs one thread at a time. A thread that splits and tokenises in the model's process makes
the model wait for its turn at every step; on a GPU that costs most of the speed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

from ffmem.corpus.sentences import CorpusRequest, TokenisedShard, backend_of, tokenise_corpus
from ffmem.corpus.sources import is_stream
from ffmem.errors import CorpusError

MOST = 4  # processes; all of them read the whole text, so more soon gain nothing
CORES = 4  # for each of them: the tokenizer has threads of its own
BUFFER = 1 << 20

# Not multiprocessing: it would run the user's script again in the new process.
COMMAND = [
    sys.executable,
    "-P",
    "-c",
    "from ffmem.corpus.tokeniser_pool import serve_shards; serve_shards()",
]


def can_tokenise_elsewhere(reading: CorpusRequest, tokenizer: Any) -> bool:
    """Whether other processes can read this: not a stream, nor with a tokenizer in Python."""
    if is_stream(reading.source):
        return False
    try:
        backend_of(tokenizer).to_str()
    except Exception:  # the library raises a bare Exception for parts it cannot write down
        return False
    return True


def tokenise_in_processes(
    reading: CorpusRequest, tokenizer: Any, processes: int | None = None
) -> Iterator[TokenisedShard]:
    """What `tokenised` gives, in the same order, made by other processes."""
    count = processes or max(1, min(MOST, (os.cpu_count() or 1) // CORES))
    text = backend_of(tokenizer).to_str()
    with ExitStack() as stack:
        answers = [
            stack.enter_context(_Worker(pickle.dumps((reading, text, turn, count))))
            for turn in range(count)
        ]
        turn = 0
        while (found := answers[turn].next()) is not None:
            yield found
            turn = (turn + 1) % count


class _Worker:
    """One process and the pipe that its shards come through; it is ended with the `with`."""

    def __init__(self, question: bytes) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=BUFFER,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the scan, which then ends this process
        )
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write(question)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def next(self) -> TokenisedShard | None:
        """The next shard, or None after the last; trouble over there is raised here."""
        try:
            found = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, pickle.UnpicklingError) as error:
            raise CorpusError(
                f"a process that prepares text ended early (exit code {self._process.wait()}), "
                "perhaps for want of memory; run the same command again to go on"
            ) from error
        if isinstance(found, BaseException):
            raise found
        return found


def serve_shards() -> None:
    """What such a process does: read the question, write one shard after the other."""
    from tokenizers import Tokenizer  # slow to import, and only needed here

    reading, text, turn, count = pickle.load(sys.stdin.buffer)
    with os.fdopen(os.dup(1), "wb", BUFFER) as out:
        os.dup2(2, 1)  # whatever prints must not end up among the shards
        try:
            for found in tokenise_corpus(reading, Tokenizer.from_str(text), turn, count):
                _write(found, out)
            _write(None, out)
        except BrokenPipeError:
            os._exit(0)  # nobody reads any more
        except BaseException as error:
            _write(error, out)


def _write(found: object, out: IO[bytes]) -> None:
    pickle.dump(found, out, protocol=pickle.HIGHEST_PROTOCOL)
    out.flush()
