"""What is shown to annotators and what they say of it, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.address import Address
from ffmem.patterns.record import AnnotatedKey, Kind, Label, Pattern, trigger_labels

CHOSEN = "chosen-"  # begins the name of a sheet that somebody picked by looking at the key


@dataclass(frozen=True)
class ShownPrefix:
    """One line of a sheet: the text before the last token, and that token."""

    before: str
    last: str


@dataclass(frozen=True)
class Sheet:
    """A key, or a control key, under a name that does not tell which."""

    name: str
    scan: str  # digest of the scan it was drawn from
    layer: int
    key: str | None  # the address, or None for a control key
    control: str | None  # "random" or "matched", or None for a real key
    prefixes: tuple[ShownPrefix, ...]

    @property
    def chosen(self) -> bool:
        """Whether its key was picked, not drawn: then it is no part of a study of random keys."""
        return self.name.startswith(CHOSEN)


@dataclass(frozen=True)
class Said:
    """One pattern as an annotator gave it."""

    description: str
    kind: Kind
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Saying:
    """All that one annotator last said of one sheet; no pattern is an answer too."""

    sheet: Sheet
    annotator: str
    said: tuple[Said, ...]

    @property
    def labels(self) -> list[Label]:
        """The label of every prefix on the sheet."""
        stand_in = Address(max(self.sheet.layer, 1), 0)
        return trigger_labels(self.patterns(stand_in), len(self.sheet.prefixes))

    def annotated(self) -> AnnotatedKey:
        """The same for Fig 2; only for sheets of real keys."""
        if self.sheet.key is None:
            raise ValueError(f"sheet {self.sheet.name} is a control, no key")
        key = Address.parse(self.sheet.key)
        return AnnotatedKey(key, len(self.sheet.prefixes), tuple(self.patterns(key)))

    def patterns(self, key: Address) -> list[Pattern]:
        """What was said, as patterns of a key."""
        return [
            Pattern(key, said.description, said.kind, said.ranks, self.annotator)
            for said in self.said
        ]


def as_said(patterns: Sequence[Pattern]) -> tuple[Said, ...]:
    """Patterns of a program as an annotator's answer."""
    return tuple(Said(found.description, found.kind, found.ranks) for found in patterns)
