"""Every file of a scan and of its search index against what it was when it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from ffmem.errors import FfmemError, StoreError, shorten
from ffmem.records import UNRESTORABLE
from ffmem.store.digests import (
    CHANGED,
    ByteWatch,
    FileDigest,
    Files,
    files_of,
    first_wrong,
    unseal,
    what_is_wrong,
)
from ffmem.store.folder import ForeignError, StudyFolder, check_files, read_json
from ffmem.store.manifest import no_scan, read_manifest

if TYPE_CHECKING:
    from ffmem.store.scan_store import ScanStore

UNFIT = (ValueError, LookupError, ArithmeticError)  # what code raises at numbers that cannot be
EVERYTHING = 1 << 62  # bytes


@dataclass(frozen=True)
class Damage:
    """A file, what is wrong with it, and what to do now."""

    file: Path
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file} {self.what}; {self.remedy}"


@dataclass(frozen=True)
class KnownFile:
    """A file with its digest, and what to do if it is damaged."""

    path: Path
    digest: FileDigest
    remedy: str


@dataclass
class Inventory:
    """The files of scans and indexes, and what is wrong with those that list them."""

    files: list[KnownFile] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return sum(one.digest.bytes for one in self.files)

    def all_damage(self, watch: ByteWatch = lambda _bytes: None) -> Iterator[Damage]:
        """Read every file; `watch` hears of every piece."""
        yield from self.damage
        for one in self.files:
            what = what_is_wrong(one.path, one.digest, watch=watch)
            if what is not None:
                yield Damage(one.path, what, one.remedy)

    def add_scan(self, folder: StudyFolder) -> None:
        """Add the files that a manifest names."""
        try:
            manifest = read_manifest(folder)
        except ForeignError:
            self.damage.append(Damage(folder.manifest, CHANGED, folder.remedy))
            return
        self._add(folder, manifest.files, folder.remedy)

    def add_index(self, folder: StudyFolder) -> None:
        """Add the files of the search index, if there is one."""
        remedy = f"delete the folder {folder.index}; it is made again when it is needed"
        if not folder.index_note.exists():
            return
        try:
            files = files_of(unseal(read_json(folder, folder.index_note))["files"])
        except UNRESTORABLE:
            self.damage.append(Damage(folder.index_note, CHANGED, remedy))
            return
        self._add(folder, files, remedy)

    def _add(self, folder: StudyFolder, files: Files, remedy: str) -> None:
        self.files += [KnownFile(folder.root / name, one, remedy) for name, one in files.items()]


def inventory(root: Path) -> Inventory:
    """The files of the scan in a folder, and of the scans in folders inside it."""
    study, found = StudyFolder(root), Inventory()
    if not study.manifest.exists():
        raise StoreError(no_scan(study))
    check_files(study)
    for folder in (study, *study.scans_inside()):
        found.add_scan(folder)
        found.add_index(folder)
    return found


def lasting_damage(root: Path, damage: list[Damage]) -> list[Damage]:
    """The damage that is there at a second look: a command may have written files meanwhile."""
    if not damage:
        return []
    files, found = {one.file for one in damage}, inventory(root)
    found.files = [one for one in found.files if one.path in files]
    return list(found.all_damage())


def refuse_damage(store: ScanStore, most: int = EVERYTHING) -> None:
    """Refuse a scan whose files are not as they were written; reads `most` bytes of them."""
    wrong = first_wrong(store.folder.root, store.manifest.files, most)
    if wrong is not None:
        name, what = wrong
        raise StoreError(f"{store.folder.root / name} {what}; {store.folder.remedy}")


def damage_behind(error: Exception, places: Iterable[Path]) -> str | None:
    """The sentence about the study in one of some folders that made code fail; None without one.

    Names the first damaged file. Where every file has its digest, what they say may still not go
    together: somebody else can have written it.
    """
    with suppress(OSError):
        studies = [root for root in places if StudyFolder(root).manifest.exists()]
        found = next(filter(None, map(_first_damage, studies)), None)
        if found is None and studies and isinstance(error, UNFIT):
            at = extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {shorten(str(error))}; {Path(at.filename).name}"
            found = (
                f"{' or '.join(map(str, studies))} is damaged or was not written by ffmem "
                f"({what}, line {at.lineno}); if ffmem wrote it, report this as a bug"
            )
        return found
    return None


def _first_damage(root: Path) -> str | None:
    """The sentence about the first damaged file of a scan; None if none is found."""
    with suppress(FfmemError):
        for damage in inventory(root).all_damage():
            return str(damage)
    return None
