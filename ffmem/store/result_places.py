"""Where results lie: a study's own in its folder, results of other settings beside them.

The first result of an analysis is the study's own. One with other settings never takes its place
unless that is asked for, and then the earlier one is moved beside, so that nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ffmem.errors import StoreError
from ffmem.store.folder import disk_trouble
from ffmem.store.result_files import plain, read_record

BESIDE = "other-settings"
NOT_SETTINGS = ("scan", "ffmem")  # a result of another scan or version is out of date


def result_path(folder: Path, name: str) -> Path:
    """Where the result of an analysis lies."""
    return folder / "analyses" / f"{name}.json"


def settings_in(made_from: dict[str, Any]) -> dict[str, Any]:
    """What a person chose, of all that decides a result."""
    return {name: value for name, value in plain(made_from).items() if name not in NOT_SETTINGS}


def own_made_from(folder: Path, name: str, scan: Any) -> dict[str, Any] | None:
    """What the study's own result was made from; None if it has none of this scan."""
    path = result_path(folder, name)
    try:
        found = read_record(path).made_from if path.exists() else None
    except StoreError:  # damaged: make it again
        return None
    of_another = found is not None and scan is not None and found.get("scan", scan) != scan
    return None if of_another else found


def place_for(folder: Path, name: str, made_from: dict[str, Any]) -> Path:
    """The folder for a result: the study's, unless that has one of other settings."""
    own = own_made_from(folder, name, made_from.get("scan"))
    if own is None or settings_in(own) == settings_in(made_from):
        return folder
    return folder_beside(folder, made_from)


def folder_beside(folder: Path, made_from: dict[str, Any]) -> Path:
    """A folder named by the settings of its results."""
    words = (f"{name}-{value}" for name, value in settings_in(made_from).items())
    return folder / BESIDE / re.sub(r"[^\w.-]+", "-", "-".join(words))


def set_aside(
    folder: Path, name: str, made_from: dict[str, Any], arrays: Collection[str] = ()
) -> Path | None:
    """Move the study's own result, with its arrays, out of the way of one with other settings.

    Returns the folder it is in now, or None where nothing is in the way.
    """
    own = own_made_from(folder, name, made_from.get("scan"))
    if own is None or settings_in(own) == settings_in(made_from):
        return None
    beside = folder_beside(folder, own)
    for path in (result_path(folder, name), *(folder / "analyses" / file for file in arrays)):
        if path.exists():
            with disk_trouble(beside):
                (beside / "analyses").mkdir(parents=True, exist_ok=True)
                path.replace(beside / "analyses" / path.name)
    return beside
