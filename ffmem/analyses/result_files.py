"""Results of analyses on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ffmem.errors import StoreError
from ffmem.files.whole_files import write_text
from ffmem.records import UNRESTORABLE, json_text, restore, to_plain
from ffmem.store.folder import StudyFolder, read_json


@dataclass(frozen=True)
class ResultFile:
    """One result on disk: its name, everything it depends on, and the result as plain values."""

    name: str
    made_from: dict[str, Any]
    seconds: float
    result: Any


def write_result(path: Path, record: ResultFile) -> None:
    """Write a result, whole or not at all."""
    write_text(path, json_text(record))


def read_result(path: Path) -> ResultFile:
    """Read a result; its values stay plain until `restore` gets their type."""
    folder = StudyFolder(path.parent.parent)
    try:
        return cast(ResultFile, restore(ResultFile, read_json(folder, path)))
    except (OSError, *UNRESTORABLE):
        raise StoreError(
            f"{path} cannot be read as a result; delete it and run again the command that made it"
        ) from None


NOT_SETTINGS = ("scan", "ffmem")  # a result of another scan or version is out of date


def settings_in(made_from: dict[str, Any]) -> dict[str, Any]:
    """The user's settings among everything that a result depends on."""
    return {name: value for name, value in to_plain(made_from).items() if name not in NOT_SETTINGS}


def refuse_other_settings(
    folder: Path, made_from: Mapping[str, dict[str, Any]], option: str = ""
) -> None:
    """Refuse to replace results of this scan that were made with other settings.

    `made_from` says by name what the new ones depend on; `option` replaces those that are there.
    """
    found = {name: _other_settings(folder, name, key) for name, key in made_from.items()}
    if names := [name for name, words in found.items() if words]:
        those = ", ".join(f"{name} ({found[name]})" for name in names)
        option = option or f"--again {','.join(names)}"
        raise StoreError(
            f"{folder} has results of other settings: {those}; give these settings or another "
            f"folder, or add {option} to replace them"
        )


def _other_settings(folder: Path, name: str, made_from: dict[str, Any]) -> str:
    """The settings of the result that is there, in words, where the new one's are others."""
    path = StudyFolder(folder).result(name)
    try:
        own = read_result(path).made_from if path.exists() else None
    except StoreError:  # damaged: make it again
        return ""
    if own is None or own.get("scan") != made_from.get("scan"):
        return ""
    old, new = settings_in(own), settings_in(made_from)
    differ = [setting for setting in {**old, **new} if old.get(setting) != new.get(setting)]
    return ", ".join(
        "another validation text" if setting == "valid" else f"{setting} {old.get(setting)}"
        for setting in differ
    )
