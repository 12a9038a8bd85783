"""One writer per folder: a lock of the operating system, which ends with its process.

The lock file holds one line of JSON that names the holder. Whoever only reads takes no lock.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from ffmem.errors import StoreError, shorten
from ffmem.locations import is_remote

if TYPE_CHECKING:
    from filelock import FileLock

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
_held: ContextVar[frozenset[str]] = ContextVar("held", default=frozenset())


@contextmanager
def only_writer(file: Path, what: str, key: str = "") -> Iterator[None]:
    """Hold the lock `file` while this lasts; refuse where another writer holds it.

    `what` names in messages what is written, and `key` stands for what is made there: a second
    writer with the same key is told that this is under way. Whoever holds a lock may take it again.
    A place without locks, such as a URL, is named in a warning.
    """
    place = str(file) if is_remote(file) else str(file.parent.resolve() / file.name)
    if place in _held.get():
        yield
        return
    lock = _take(Path(place), what, key) if not is_remote(file) else None
    if lock is None:
        logging.getLogger(__name__).warning(
            "ffmem: files cannot be locked at %s, so let only one command write there", what
        )
    before = _held.set(_held.get() | {place})
    try:
        yield
    finally:
        _held.reset(before)
        if lock is not None:
            with suppress(OSError):
                Path(place).unlink()
            lock.release()


def _take(place: Path, what: str, key: str) -> FileLock | None:
    """The lock, taken and with our line in it; None where the file system has none."""
    from filelock import FileLock, Timeout

    lock = FileLock(place, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise StoreError(_refusal(place, what, key)) from None
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    with suppress(OSError):
        place.write_text(_own_line(key), encoding="utf-8")
    return lock


def _own_line(key: str) -> str:
    name = Path(sys.argv[0]).name
    facts = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join(["ffmem" if name == "__main__.py" else name, *sys.argv[1:]]),
        "key": key,
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    return json.dumps(facts, ensure_ascii=False) + "\n"


def _refusal(place: Path, what: str, key: str) -> str:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        who = f"process {found['pid']} on {found['host']}"
        doing = f"`{shorten(str(found['command']))}`, since {found['since']}"
        same = bool(key) and found["key"] == key
    except (OSError, ValueError, KeyError, TypeError):  # it is about to write its line
        who, doing, same = "another process", "for a moment", False
    if same:
        return (
            f"{what} is being made already, with the same settings, by {who} ({doing}); wait until "
            "it ends, and the same command then opens what it has made"
        )
    return (
        f"{what} is being written by {who} ({doing}); wait until it ends, or choose another folder"
    )
