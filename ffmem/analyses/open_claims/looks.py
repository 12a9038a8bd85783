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
FirstLook = dict[str, dict[str, Any]]  # what each file was made from


@dataclass(frozen=True)
class ClaimLook:
    """The last look at one claim: `amount` of what its analysis measures more of, and its finding.

    `sentences` were read, where these are measured: fewer than `amount` if the text has no more.
    `first` is by analysis and file what the first look depends on, here, in the controls and of
    what people said: with anything else this look does not count.
    """

    claim: str
    look: int
    amount: int
    seconds: float
    finding: Finding
    controls: dict[str, tuple[Finding, ...]]
    first: dict[str, FirstLook]
    sentences: int | None = None

    @property
    def later(self) -> LaterLook:
        """As claims are judged by it."""
        return LaterLook(self.look, self.finding, self.controls)


@dataclass(frozen=True)
class Looks:
    """All of them, the last one of each claim."""

    looks: tuple[ClaimLook, ...] = ()


def first_looks(folder: StudyFolder, analyses: tuple[str, ...]) -> dict[str, FirstLook]:
    """What the first look at some analyses depends on, by name and file; none that is damaged."""
    return {name: _first_look(folder, name) for name in analyses}


def _first_look(folder: StudyFolder, analysis: str) -> FirstLook:
    """The same of one analysis: its results here and in the controls, and those of people."""
    found: FirstLook = {}
    for one in (folder, *folder.controls.values()):
        for path in (one.result(analysis), *one.matching(one.result(f"{analysis}-*"))):
            try:
                if path.exists():
                    found[folder.name(path)] = to_plain(read_result(path).made_from)
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
