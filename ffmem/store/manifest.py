"""The manifest of a store: everything that decides its content, and its counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ffmem.address import Parts
from ffmem.errors import CorpusError, StoreError
from ffmem.files.whole_files import AlreadyThereError, write_text
from ffmem.records import UNRESTORABLE, restore
from ffmem.scan.settings import ScanSettings
from ffmem.store.digests import Files, files_of, seal, unseal
from ffmem.store.folder import StudyFolder, foreign, read_json

if TYPE_CHECKING:
    from ffmem.corpus.sentences import SentenceSettings
    from ffmem.corpus.sources import Source

FORMAT = 1  # raised when another version would misread the files


@dataclass(frozen=True)
class ScanKey:
    """All that decides what a scan finds: two scans with equal keys are the same scan.

    `model`, `corpus` and `settings` hold plain values only, so that they survive JSON.
    """

    model: dict[str, Any]
    corpus: dict[str, Any]
    settings: dict[str, Any]

    @property
    def digest(self) -> str:
        """Twelve hex digits that stand for the key."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def source(self) -> Source:
        """The text that was scanned; refuses text that lies nowhere any more."""
        from ffmem.corpus.sources import IN_MEMORY, STREAM, Source  # here: few read the text again

        if self.corpus["digest"] == STREAM:
            raise CorpusError(
                "the text of this scan came through a pipe and cannot be read again; name a text "
                "with --valid"
            )
        if self.corpus["path"] == IN_MEMORY:
            raise CorpusError(
                "the texts of this scan came from the memory of a program and cannot be read "
                "again; name a text with valid= (--valid)"
            )
        names = [field.name for field in fields(Source)]
        return Source(**{name: self.corpus[name] for name in names})

    def sentence_settings(self) -> SentenceSettings:
        """How the text was cut into sentences."""
        from ffmem.corpus.sentences import SentenceSettings

        names = [field.name for field in fields(SentenceSettings)]
        return SentenceSettings(
            **{name: self.corpus[name] for name in names if name in self.corpus}
        )

    def scan_settings(self) -> ScanSettings:
        """The scan's settings."""
        names = [field.name for field in fields(ScanSettings)]
        return ScanSettings(**{name: self.settings[name] for name in names})

    def differences(self, other: ScanKey) -> list[str]:
        """The differences of two keys, as `part.name`."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{part}.{name}"
            for part in mine
            for name in sorted(set(mine[part]) | set(theirs[part]))
            if mine[part].get(name) != theirs[part].get(name)
        ]


@dataclass(frozen=True)
class Manifest:
    """The key of a finished scan, its layers, counts, versions that made it, and files."""

    key: ScanKey
    layers: list[tuple[int, int]]  # (number, memories)
    signed: bool
    counts: dict[str, int]
    seconds: float
    versions: dict[str, str]
    files: Files
    format: int = FORMAT
    mixtures: dict[int, Parts] = field(default_factory=dict)  # experts of layers that have any

    @property
    def has_rankings(self) -> bool:
        """Whether the scan knows which tokens its values promote and suppress."""
        return StudyFolder(Path()).table("values").name in self.files

    def write(self, folder: StudyFolder) -> None:
        """Put the manifest in place; from then on the folder is complete."""
        data = asdict(self)
        if self.mixtures:
            data["mixtures"] = {str(layer): parts for layer, parts in data["mixtures"].items()}
        else:
            del data["mixtures"]
        text = json.dumps(seal(data), indent=2, ensure_ascii=False) + "\n"
        try:
            write_text(folder.manifest, text, new=True)
        except AlreadyThereError:
            refuse_other_scan(folder, read_manifest(folder).key, self.key)
            write_text(
                folder.manifest, text
            )  # the same scan: a worker wrote it, and was lost before anybody heard of it


def refuse_other_scan(folder: StudyFolder, found: ScanKey, wanted: ScanKey) -> None:
    """Never write one scan over another."""
    if found.digest != wanted.digest:
        where = ", ".join(found.differences(wanted)) or "something"
        raise StoreError(
            f"{folder.root} holds another scan (it differs in {where}); choose another folder"
        )


def read_manifest(folder: StudyFolder) -> Manifest:
    """The manifest of a finished scan, or one sentence why there is none."""
    if not folder.manifest.exists():
        raise StoreError(no_scan(folder))
    try:
        return _manifest_of(read_json(folder, folder.manifest), folder)
    except StoreError:
        raise
    except UNRESTORABLE:
        raise foreign(
            folder, folder.manifest, f"has changed since it was written; {folder.remedy}"
        ) from None


def _manifest_of(data: dict[str, Any], folder: StudyFolder) -> Manifest:
    """A manifest from what its file says; anything that it cannot have said raises."""
    data = unseal(data)
    if data["format"] != FORMAT:
        raise StoreError(
            f"{folder.root} was written by another version of ffmem (store format "
            f"{data['format']}, this one reads {FORMAT}); open it with that version, or scan again"
        )
    found = cast(Manifest, restore(Manifest, data | {"files": {}}))
    check_numbers(found)
    return replace(found, files=files_of(data["files"]))


def check_numbers(manifest: Manifest) -> None:
    """A ValueError if layers, experts, counts or settings cannot be those of a scan."""
    layers, names = dict(manifest.layers), ("prefixes", "sentences", "tokens")
    known = (
        len(layers) == len(manifest.layers)
        and min(layers, default=1) >= 1
        and min(layers.values(), default=1) >= 1
        and all(manifest.counts[name] >= 0 for name in names)
        and isinstance(manifest.key.model["name"], str)
        and manifest.key.scan_settings().signed == manifest.signed
        and all(fits(parts, layers[layer]) for layer, parts in manifest.mixtures.items())
    )
    if not known:
        raise ValueError("numbers that no scan has")


def fits(parts: Parts, memories: int) -> bool:
    """Whether experts can be those of a layer with so many memories."""
    numbers = parts.numbers or (0,) * parts.experts if parts.experts <= memories else ()
    return (
        min(parts.experts, parts.size) >= 1
        and min(parts.shared, default=1) >= 1
        and parts.memories == memories
        and len(numbers) == parts.experts
        and min(numbers) >= 0
    )


def no_scan(folder: StudyFolder) -> str:
    """Why a folder cannot be opened as a scan."""
    if folder.checkpoint.exists() or folder.parts.exists():
        return (
            f"the scan in {folder.root} is not finished; run the same `ffmem scan` command again "
            "and it goes on where it was"
        )
    if not folder.root.exists():
        return (
            f"there is no folder {folder.root}; make a scan with `ffmem scan MODEL CORPUS -o DIR`"
        )
    if folder.array("fires").exists():
        return f"{folder.manifest} is missing; run the same `ffmem scan` command again"
    return f"{folder.root} holds no scan; make one with `ffmem scan MODEL CORPUS -o DIR`"
