"""Errors that a user can mend.

FfmemError
├── ModelError      a model that cannot be found, read or seen as memories
├── AddressError    a memory that is not written properly or not in the model
├── EditError       an edit that cannot be understood or applied
├── CorpusError     text that cannot be found or read
├── ScanError       a scan that cannot start or go on
├── StoreError      a folder of results that cannot be opened or written
├── AnnotatorError  a language model that cannot be asked for patterns
├── LiveError       a question that the explorer's model cannot take now
└── ListenError     an address that the explorer cannot listen at

Each message is one sentence: what is wrong, which one, and what to do now. The command line
prints it and exits with code 2; anything else that escapes is a bug and keeps its traceback.
"""


class FfmemError(Exception):
    """Base of every error that a user can mend."""


class ModelError(FfmemError):
    """A model cannot be found, read, or seen as a list of feed-forward memories."""


class AddressError(FfmemError):
    """A memory address is malformed or lies outside the model."""


class EditError(FfmemError):
    """An edit of a coefficient cannot be understood or applied."""


class CorpusError(FfmemError):
    """Text cannot be found, read or decoded."""


class ScanError(FfmemError):
    """A scan cannot start or cannot go on."""


class StoreError(FfmemError):
    """A folder of results cannot be opened, trusted or written."""


class AnnotatorError(FfmemError):
    """A language model cannot be asked for patterns."""


class LiveError(FfmemError):
    """A question to the explorer's live model cannot be taken now."""


class ListenError(FfmemError):
    """The explorer cannot listen at an address."""
