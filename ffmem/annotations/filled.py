"""What all filled sheets share: lines, letters that count, and where something is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ffmem.errors import StoreError


@dataclass(frozen=True)
class FilledFile:
    """A file that somebody filled in."""

    name: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, text: str, name: str) -> FilledFile:
        """The lines of a text, whatever editor it comes from."""
        return cls(name, tuple(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")))

    def wrong(self, line: int, what: str) -> StoreError:
        """The error that names the line to mend."""
        return StoreError(f"{self.name}, line {line}: {what}")


def letters(text: str) -> str:
    """Text without what editors change: spaces, and marks that Markdown gives a meaning."""
    return re.sub(r"[\s*_\\]", "", text)
