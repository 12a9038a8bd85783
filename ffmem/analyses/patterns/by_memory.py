"""Every pattern that a study's results have, by memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ffmem.analyses.patterns.record import Pattern
from ffmem.analyses.result_files import read_result
from ffmem.errors import StoreError
from ffmem.records import UNRESTORABLE, restore
from ffmem.store.folder import StudyFolder
from ffmem.store.people.annotators import is_language_model, is_person


@dataclass(frozen=True, eq=False)
class StudyPatterns:
    """Every pattern of a study, by address; those of most triggers first."""

    by_address: dict[str, tuple[Pattern, ...]]

    def of(self, address: str) -> tuple[Pattern, ...]:
        """The patterns of one memory."""
        return self.by_address.get(address, ())

    def foremost(self, address: str) -> tuple[Pattern, ...]:
        """Those of people, or else those of language models, or else those of the rule."""
        every = self.of(address)
        for counts_first in (is_person, is_language_model):
            if found := tuple(one for one in every if counts_first(one.annotator)):
                return found
        return every


def study_patterns(folder: StudyFolder) -> StudyPatterns:
    """All patterns of a study, read again only when a file has changed."""
    paths = folder.matching(folder.result("patterns*"))
    return _read(tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path, int], ...]) -> StudyPatterns:
    found: dict[str, list[Pattern]] = defaultdict(list)
    for path, _ in files:
        result = read_result(path).result
        try:
            read_blind = (result.get("readings") or {}).get("records", [])
            records = restore(tuple[Pattern, ...], [*result.get("records", []), *read_blind])
        except UNRESTORABLE as error:
            raise StoreError(
                f"{path} cannot be read as patterns ({error}); delete it and run again the command "
                "that made it"
            ) from None
        for pattern in records:
            found[str(pattern.key)].append(pattern)
    return StudyPatterns({key: _most_first(patterns) for key, patterns in found.items()})


def _most_first(patterns: list[Pattern]) -> tuple[Pattern, ...]:
    return tuple(sorted(patterns, key=lambda pattern: -len(pattern.ranks)))
