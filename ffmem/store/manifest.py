"""The manifest of a store: everything that decides its content, and its counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ffmem.address import Parts
from ffmem.errors import CorpusError, StoreError
from ffmem.scan.settings import ScanSettings
from ffmem.store.digests import SEAL, FileDigest, Files, seal, unseal
from ffmem.store.folder import StudyFolder, write_whole

if TYPE_CHECKING:
    from ffmem.corpus.sentences import SentenceSettings
    from ffmem.corpus.sources import Source

FORMAT = 4  # raised when an older reader would misread the files: 3 experts, 4 numbers in few bits
WITHOUT_DIGESTS = 1  # the format that knew nothing of its files


class ManifestError(StoreError):
    """A manifest that exists but has changed since it was written."""


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
        return Source(**{name: self.corpus[name] for name in names if name in self.corpus})

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
    """The key of a finished scan, its layers, counts, versions that made it, and files.

    A scan that was written before there were digests names no files.
    """

    key: ScanKey
    layers: list[tuple[int, int]]  # (number, memories)
    signed: bool
    counts: dict[str, int]
    seconds: float
    versions: dict[str, str]
    files: Files = field(default_factory=dict)
    format: int = FORMAT
    mixtures: dict[int, Parts] = field(default_factory=dict)  # experts of layers that have any

    def write(self, folder: StudyFolder) -> None:
        """Put the manifest in place; from then on the folder is complete."""
        data = asdict(self)
        if self.mixtures:
            data["mixtures"] = {str(layer): parts for layer, parts in data["mixtures"].items()}
        else:
            del data["mixtures"]  # as it was written before there were any
        text = json.dumps(seal(data), indent=2, ensure_ascii=False) + "\n"
        write_whole(folder.manifest, lambda part: part.write_text(text, encoding="utf-8"))


def read_manifest(folder: StudyFolder) -> Manifest:
    """The manifest of a finished scan, or one sentence why there is none."""
    if not folder.manifest.exists():
        raise StoreError(no_scan(folder))
    try:
        return manifest_of(json.loads(folder.manifest.read_text(encoding="utf-8")), folder)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise ManifestError(
            f"{folder.manifest} has changed since it was written; {folder.remedy}"
        ) from None


def manifest_of(data: dict[str, Any], folder: StudyFolder) -> Manifest:
    """A manifest from what its file says; anything that it cannot have said raises."""
    if SEAL in data or data["format"] != WITHOUT_DIGESTS:
        data = unseal(data)
    if data["format"] > FORMAT:
        raise StoreError(
            f"{folder.root} was written by a newer ffmem (store format {data['format']}, this one "
            f"reads up to {FORMAT}); update ffmem to open it"
        )
    data["key"] = ScanKey(**data["key"])
    data["layers"] = [(int(number), int(memories)) for number, memories in data["layers"]]
    mixtures = data.get("mixtures", {}).items()
    data["mixtures"] = {
        int(layer): Parts(
            one["experts"], one["size"], tuple(one["beside"]), tuple(one.get("numbers", ()))
        )
        for layer, one in mixtures
    }
    data["files"] = {name: FileDigest(**one) for name, one in data.get("files", {}).items()}
    return Manifest(**data)


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
