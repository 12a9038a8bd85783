"""The database of annotations that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ffmem.annotations.database import Annotations


def database_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --database to a command."""
    return click.option(
        "--database",
        help="A file, or a URL such as postgresql://user@host/name; by default "
        "FOLDER/annotations.sqlite.",
    )(command)


def opened(folder: Path, database: str | None) -> Annotations:
    """The database of a scan's annotations."""
    from ffmem.annotations.database import Annotations
    from ffmem.store.scan_store import ScanStore

    ScanStore.open(folder)  # refuses a folder that is no scan before anything is made in it
    return Annotations.open(database or str(folder / "annotations.sqlite"))
