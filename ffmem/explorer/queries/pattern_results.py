"""Patterns that people or rules have found, by the memory whose triggers share them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ffmem.address import Address
from ffmem.annotations.sheets import SheetAnswer
from ffmem.store.digests import check_note
from ffmem.store.folder import StudyFolder
from ffmem.store.slots import TRIGGERS_SHOWN


@dataclass(frozen=True)
class PatternView:
    """What triggers have in common: which of them (ranks from 1), and the share that is."""

    description: str
    kind: str
    ranks: tuple[int, ...]
    annotator: str
    covered: float


@dataclass(frozen=True)
class StudyPatterns:
    """Every pattern of a study, by address."""

    by_address: dict[str, tuple[PatternView, ...]]

    def of(self, address: str) -> tuple[PatternView, ...]:
        """The patterns of one memory."""
        return self.by_address.get(address, ())


def answer_patterns(saying: SheetAnswer) -> list[PatternView]:
    """What an annotator has said of a sheet, in the same form."""
    return [
        PatternView(
            said.description,
            said.kind,
            said.ranks,
            saying.annotator,
            len(said.ranks) / TRIGGERS_SHOWN,
        )
        for said in saying.said
    ]


def pattern_results(folder: StudyFolder) -> StudyPatterns:
    """All patterns of a study, read again only when a file has changed."""
    paths = folder.matching(folder.result("patterns*"))
    return _read(tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path, int], ...]) -> StudyPatterns:
    found: dict[str, list[PatternView]] = defaultdict(list)
    for path, _ in files:
        check_note(path)
        data = json.loads(path.read_text(encoding="utf-8"))
        for record in data.get("result", data).get("records", []):
            found[_address(record["key"])].append(
                PatternView(
                    description=record["description"],
                    kind=record["kind"],
                    ranks=tuple(record["ranks"]),
                    annotator=record["annotator"],
                    covered=len(record["ranks"]) / TRIGGERS_SHOWN,
                )
            )
    ordered = {
        address: tuple(sorted(patterns, key=lambda pattern: -pattern.covered))
        for address, patterns in found.items()
    }
    return StudyPatterns(ordered)


def _address(key: dict[str, Any] | str) -> str:
    return key if isinstance(key, str) else str(Address(**key))
