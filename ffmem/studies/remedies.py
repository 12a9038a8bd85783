"""The remedy for each damaged file of a study, and the file behind an error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ffmem.errors import FfmemError
from ffmem.store.folder import StudyFolder
from ffmem.store.verification import Damage, inventory
from ffmem.studies.registry import ANALYSES

ARRAYS = {"values": "values", "sample": "refinement"}  # by the analysis that makes them


def remedy(root: Path, file: str) -> str:
    """What makes a file of the study whole again."""
    inside = holder(root, file)
    match inside.role(root / file):
        case "notes":
            return "delete it; files that are written from now on are noted again"
        case "index":
            return f"delete the folder {inside.index}; it is made again when it is needed"
        case "result":
            return _analyse_again(StudyFolder(root), inside, (root / file).stem)
        case "figure" | "report":
            return f"run `ffmem report {inside.root}`"
        case "scan":
            return inside.remedy


def holder(root: Path, file: str) -> StudyFolder:
    """The study that a file belongs to: the one in a folder, or one inside it."""
    inside = StudyFolder(root / file.split("/")[0])
    return inside if inside.manifest.exists() else StudyFolder(root)


def _analyse_again(study: StudyFolder, inside: StudyFolder, name: str) -> str:
    analysis = ARRAYS.get(name, name)
    if analysis not in ANALYSES:
        return "delete it and run the command that made it again"
    words = f"{inside.root} --only {analysis} --again {analysis}"
    if inside == study.control:
        words = f"{study.root} --only {analysis} --again {analysis} --control random-weights"
    return f"run `ffmem analyse {words}`, as it was run before"


def sentence(root: Path, damage: Damage) -> str:
    """One damaged file, and what to do."""
    return f"{root / damage.file} {damage.what}; {remedy(root, damage.file)}"


def first_damage(root: Path) -> str | None:
    """The first damaged file of a study as a sentence, or None if there is none to be seen."""
    with suppress(FfmemError):
        for damage in inventory(root).all_damage():
            return sentence(root, damage)
    return None
