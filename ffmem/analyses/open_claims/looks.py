"""What later looks at claims have found, as a study keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.analyses.claim import Finding
from ffmem.analyses.result_files import ResultFile, read_result, write_result
from ffmem.analyses.verdicts import LaterLook
from ffmem.errors import StoreError
from ffmem.records import UNRESTORABLE, restore, to_plain
from ffmem.store.folder import StudyFolder

RESULT = "later_looks"


@dataclass(frozen=True)
class ClaimLook:
    """The last look at one claim: `amount` of what its analysis measures more of, and its finding.

    `sentences` were read, where these are measured: fewer than `amount` if the text has no more.
    `first` is what the result of the first look depends on: with another one this does not count.
    """

    claim: str
    look: int
    amount: int
    seconds: float
    finding: Finding
    controls: dict[str, tuple[Finding, ...]]
    first: dict[str, dict[str, Any]]
    sentences: int | None = None

    @property
    def later(self) -> LaterLook:
        """As claims are judged by it."""
        return LaterLook(self.look, self.finding, self.controls)


@dataclass(frozen=True)
class Looks:
    """All of them, the last one of each claim."""

    looks: tuple[ClaimLook, ...] = ()


def first_looks(folder: StudyFolder, analyses: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What the results of some analyses in a folder depend on, by name; none that is damaged."""
    found = {}
    for name in analyses:
        try:
            if folder.result(name).exists():
                found[name] = to_plain(read_result(folder.result(name)).made_from)
        except StoreError:  # which is said where the result is read
            continue
    return found


def read_looks(folder: StudyFolder) -> dict[str, ClaimLook]:
    """The later looks that still belong to the results in a folder, by claim.

    A damaged file counts as none: the same command makes it again.
    """
    path = folder.result(RESULT)
    try:
        found = restore(Looks, read_result(path).result) if path.exists() else Looks()
    except (StoreError, *UNRESTORABLE):
        return {}
    return {
        one.claim: one
        for one in found.looks
        if one.first and first_looks(folder, tuple(one.first)) == one.first
    }


def write_looks(folder: StudyFolder, looks: dict[str, ClaimLook], seconds: float) -> None:
    """Keep them, whole or not at all."""
    path: Path = folder.result(RESULT)
    write_result(path, ResultFile(RESULT, {}, round(seconds, 2), Looks(tuple(looks.values()))))
