"""A process that runs one function, and exchanges pickled values with this one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from ffmem.errors import CorpusError

BUFFER = 1 << 20


class ChildProcess:
    """A process that runs one function of a module and exchanges pickled values with it.

    Not multiprocessing, which would run the user's script again in the new process. It ends when
    this one does, because nobody writes to it or reads from it any more.
    """

    def __init__(self, serve: Callable[[], None]) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            command(serve),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=BUFFER,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the scan, which then ends this process
        )

    def send(self, value: object) -> None:
        """Write one value to the process; one that is dead is noticed when it should answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            write(value, self._process.stdin)

    def receive(self) -> Any:
        """The next value that the process writes; trouble over there is raised here."""
        try:
            found = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, pickle.UnpicklingError) as error:
            raise CorpusError(
                f"a process that prepares text ended early (exit code {self._process.wait()}), "
                "perhaps because memory ran out; run the same command again to resume"
            ) from error
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the process; one that is dead already cannot take what is left in its pipe."""
        self._process.kill()
        with suppress(BrokenPipeError), self._process:
            pass

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def command(serve: Callable[[], None]) -> list[str]:
    """The command that runs a function of a module."""
    name, module = serve.__name__, serve.__module__
    return [sys.executable, "-P", "-c", f"from {module} import {name}; {name}()"]


@contextmanager
def answers() -> Iterator[IO[bytes]]:
    """The pipe to the asking process; whatever prints goes to standard error instead."""
    with os.fdopen(os.dup(1), "wb", BUFFER) as out:
        os.dup2(2, 1)
        yield out


def write(value: object, pipe: IO[bytes]) -> None:
    """Write one value."""
    pickle.dump(value, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()
