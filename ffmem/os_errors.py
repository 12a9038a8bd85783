"""What the operating system refuses, as one sentence: what, which one, what to do now."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ffmem.errors import FfmemError

ADVICE = {
    errno.EACCES: "ask its owner for permission, or choose another one",
    errno.EPERM: "ask its owner for permission, or choose another one",
    errno.EROFS: "choose a place that can be written",
    errno.EIO: "choose another one, or check the disk",
    errno.EISDIR: "name a file inside it",
    errno.ENOTDIR: "a part of the path is a file, so check the path",
    errno.ELOOP: "it is a link that leads back to itself, so name what it should lead to",
    errno.ENAMETOOLONG: "choose a shorter one",
    errno.ENOSPC: "make room, or choose another disk",
    errno.EDQUOT: "make room, or choose another disk",
    errno.EMFILE: "close other programs, or raise the limit with `ulimit -n`",
    errno.ENOMEM: "close other programs, or choose less to hold at a time",
}
LONGEST = 100  # characters of a name that a sentence shows


@contextmanager
def refusals(what: str, kind: type[FfmemError] = FfmemError) -> Iterator[None]:
    """Whatever the system refuses inside is raised as `kind`, beginning with `what`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what} ({reason(error)}); {advice(error)}") from error


def sentence(error: OSError) -> str:
    """The sentence for a refusal that nobody expected."""
    name = error.filename2 or error.filename
    about = "what is read or written" if name is None else shorten(str(name))
    return f"the system refuses {about} ({reason(error)}); {advice(error)}"


def reason(error: OSError) -> str:
    """The system's own words."""
    return error.strerror or str(error) or type(error).__name__


def advice(error: OSError) -> str:
    """What to do about it."""
    return ADVICE.get(error.errno or 0, "check the path and try again")


def is_text(text: str) -> bool:
    """Whether a text is Unicode; of bytes that are not UTF-8 Python makes half characters."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def shorten(text: str) -> str:
    """A name as a sentence can show it: printable, and not longer than a line."""
    shown = text if text.isprintable() else repr(text)[1:-1]
    half = LONGEST // 2
    return shown if len(shown) <= LONGEST else f"{shown[:half]}...{shown[-half:]}"
