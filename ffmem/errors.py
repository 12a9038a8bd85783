"""Errors that a user can fix.

FfmemError
├── ModelError      a model that cannot be found, or read as memories (MLP neurons)
├── AddressError    a memory that is not written properly or not in the model
├── ConditionError  a condition on memories that a study cannot answer
├── EditError       an edit that cannot be understood or applied
├── CorpusError     text that cannot be found or read
├── ScanError       a scan that cannot start or go on
├── StoreError      a folder of results that cannot be opened or written
│   └── DatabaseError   a database of annotations that cannot be used now
├── AnnotatorError  a language model that cannot be used as annotator
├── LiveError       a request that the explorer's model cannot serve now
└── ListenError     an address that the explorer cannot listen at

Each message is one sentence: what is wrong, which one, and what to do now. The command line
prints it and exits with code 2; anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index

# Spaces where no line may end: before a unit, and around the dots of an interval.
IN_NUMBERS = r"(?<=\d) (?=(?:%|s|min|h|GiB|MiB|KiB)(?!\w)|\.\.)|(?<=\.\.) (?=[-+\d])"


class FfmemError(Exception):
    """Base of every error that a user can fix."""


class ModelError(FfmemError):
    """A model cannot be found or loaded, or its feed-forward layers cannot be read exactly."""


class AddressError(FfmemError):
    """A memory address is malformed or outside the model."""


class ConditionError(FfmemError):
    """A condition on memories names a column or value that a study does not have."""


class EditError(FfmemError):
    """An edit of a coefficient cannot be understood or applied."""


class CorpusError(FfmemError):
    """Text cannot be found, read or decoded."""


class ScanError(FfmemError):
    """A scan cannot start or cannot continue."""


class StoreError(FfmemError):
    """A folder of results cannot be opened, trusted or written."""


class DatabaseError(StoreError):
    """A database of annotations cannot be opened, read or written now."""


class AnnotatorError(FfmemError):
    """A language model cannot be used as annotator."""


class LiveError(FfmemError):
    """The explorer's live model cannot answer a question now."""


class ListenError(FfmemError):
    """The explorer cannot listen at an address."""


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
    """Turn an operating-system error inside the `with` into a `kind` that begins with `what`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what} ({reason(error)}); {advice(error)}") from error


def sentence(error: OSError) -> str:
    """The message for an operating-system error: reason and advice."""
    name = error.filename2 or error.filename
    about = "what is read or written" if name is None else shorten(str(name))
    return f"the system refuses {about} ({reason(error)}); {advice(error)}"


def reason(error: OSError) -> str:
    """The operating system's description of the error."""
    return error.strerror or str(error) or type(error).__name__


def advice(error: OSError) -> str:
    """The advice to the user."""
    return ADVICE.get(error.errno or 0, "check the path and try again")


def whole_number(value: object, what: str, kind: type[FfmemError] = FfmemError) -> int:
    """A caller's integer (Python, numpy or torch) as an int; `what` names it in the error."""
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise kind(f"{what} is {shorten(repr(value))}; give a whole number")


def is_text(text: str) -> bool:
    """Whether a text is valid Unicode; Python decodes bytes that are not UTF-8 to surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def shorten(text: str) -> str:
    """A name for an error message: printable, and at most one line long."""
    shown = text if text.isprintable() else repr(text)[1:-1]
    half = LONGEST // 2
    return shown if len(shown) <= LONGEST else f"{shown[:half]}...{shown[-half:]}"
