"""What to do about each damaged file of a study, and which one is behind an error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ffmem.errors import FfmemError
from ffmem.store.digests import NOTES
from ffmem.store.folder import StudyFolder
from ffmem.store.verification import Damage, inventory
from ffmem.studies.inputs import FOLDER as CONTROL
from ffmem.studies.registry import ANALYSES

ARRAYS = {"values.npz": "values", "sample.npz": "refinement"}  # by the analysis that makes them


def remedy(root: Path, file: str) -> str:
    """What makes a file of the study whole again."""
    folder, _, name = file.rpartition("/")
    if name == NOTES:
        return "delete it; files that are written from now on are noted again"
    if folder.endswith("prepared"):
        return f"delete the folder {root / folder}; it is made again when it is needed"
    control = folder.split("/")[0] == CONTROL
    if folder.endswith("analyses"):
        return _analyse_again(root, name, " --control random-weights" if control else "")
    inside = root / CONTROL if control else root
    if folder.endswith("figures") or name in ("report.html", "report.md", "numbers.json"):
        return f"run `ffmem report {inside}`"
    return StudyFolder(inside).remedy


def _analyse_again(root: Path, name: str, option: str) -> str:
    analysis = ARRAYS.get(name, name.removesuffix(".json"))
    if analysis not in ANALYSES:
        return "delete it and run the command that made it again"
    options = f"--only {analysis} --again {analysis}{option}"
    return f"run `ffmem analyse {root} {options}`, as it was run before"


def sentence(root: Path, damage: Damage) -> str:
    """One damaged file, and what to do."""
    return f"{root / damage.file} {damage.what}; {remedy(root, damage.file)}"


def first_damage(root: Path) -> str | None:
    """The first damaged file of a study as a sentence, or None if there is none to be seen."""
    with suppress(FfmemError):
        for damage in inventory(root).all_damage():
            return sentence(root, damage)
    return None
