"""Every file of a study against what it was when it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ffmem.errors import StoreError
from ffmem.store.digests import (
    SEAL,
    ByteWatch,
    FileDigest,
    Files,
    read_notes,
    unseal,
    what_is_wrong,
)
from ffmem.store.folder import StudyFolder
from ffmem.store.manifest import ManifestError, no_scan, read_manifest
from ffmem.store.range_checks import range_damage
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class Damage:
    """A file, by its path below the study, and what is wrong with it."""

    file: str
    what: str


@dataclass
class Inventory:
    """The files of a study: what each may be, what is wrong already, and what has no digest."""

    root: Path
    files: dict[str, tuple[FileDigest, ...]] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    scans_without: list[Path] = field(default_factory=list)  # written before there were digests
    results_without: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return sum(known[-1].bytes for known in self.files.values())

    def all_damage(self, watch: ByteWatch = lambda _bytes: None) -> Iterator[Damage]:
        """Read every file; `watch` hears of every piece."""
        yield from self.damage
        for name, known in self.files.items():
            what = what_is_wrong(self.root / name, known, watch=watch)
            if what is not None:
                yield Damage(name, what)
        for scan in self.scans_without:
            yield from self._impossible(scan)

    def _impossible(self, scan: Path) -> Iterator[Damage]:
        """The impossible values in a scan without digests."""
        try:
            for file, what in range_damage(ScanStore.open(scan)):
                yield Damage(self._name(scan) + file, what)
        except StoreError as error:  # its sentence names the file, and then what to do
            yield Damage(
                self._below(StudyFolder(scan).arrays), f"cannot be read: {str(error).split(';')[0]}"
            )

    def add_scan(self, folder: StudyFolder) -> None:
        """Add the files that a manifest names."""
        name = self._name(folder.root)
        try:
            manifest = read_manifest(folder)
        except ManifestError:
            self.damage.append(
                Damage(self._below(folder.manifest), "has changed since it was written")
            )
            return
        self._add(name, manifest.files)
        if not manifest.files:
            self.scans_without.append(folder.root)

    def add_index(self, folder: StudyFolder) -> None:
        """Add the files of the search index, if there is one."""
        if not folder.index_note.exists():
            return
        try:
            data = json.loads(folder.index_note.read_text(encoding="utf-8"))
            if SEAL not in data and "files" not in data:  # an older version's: it is made again
                return
            files = {name: FileDigest(**one) for name, one in unseal(data)["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            self.damage.append(
                Damage(self._below(folder.index_note), "has changed since it was written")
            )
            return
        self._add(self._name(folder.root), files)

    def add_later(self, folder: StudyFolder) -> None:
        """Add results, figures and reports, and those of them that nobody noted."""
        noted = set()
        for notes in folder.notes():
            found, damaged = read_notes(notes)
            below = self._name(notes.parent)
            noted |= {below + file for file in found}
            self.files |= {below + file: tuple(known) for file, known in found.items()}
            if damaged:
                what = f"has {damaged:,} lines that are not as they were written"
                self.damage.append(Damage(self._below(notes), what))
        there = {
            self._below(path)
            for path in folder.later_files()
            if folder.role(path) != "notes" and path.suffix != ".part"
        }
        self.results_without += sorted(there - noted)

    def _add(self, name: str, files: Files) -> None:
        self.files |= {name + file: (known,) for file, known in files.items()}

    def _name(self, folder: Path) -> str:
        """The path of a folder below the study, ready to have a file's name put behind it."""
        below = self._below(folder)
        return below + "/" if below else ""

    def _below(self, path: Path) -> str:
        return StudyFolder(self.root).name(path)


def inventory(root: Path) -> Inventory:
    """All files of the study in a folder, and of the scans in folders inside it."""
    study, found = StudyFolder(root), Inventory(root)
    if not study.manifest.exists():
        raise StoreError(no_scan(study))
    for folder in (study, *study.scans_inside()):
        found.add_scan(folder)
        found.add_index(folder)
        found.add_later(folder)
    return found
