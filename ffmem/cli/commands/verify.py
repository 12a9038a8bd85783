"""`ffmem verify DIR`: whether every file is as it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ffmem.cli.options import LOCATION
from ffmem.cli.output import say

if TYPE_CHECKING:
    from ffmem.store.verification import Inventory


@click.command()
@click.argument("folder", type=LOCATION)
def verify(folder: Path) -> None:
    r"""Check every file of the scan or study in FOLDER against its digest.

    Prints a line for each file that is damaged or missing, with what to do, and exits with code 2
    if there is one. FOLDER may be a URL.

    \b
    Example:
        ffmem verify out/scan
    """
    from ffmem.store.verification import inventory

    found = inventory(folder)
    with progress(found.bytes) as watch:
        damage = list(found.all_damage(watch))
    if damage:
        from ffmem.studies.study import damage_sentence  # slow, and only needed now

        for one in damage:
            say(damage_sentence(folder, one))
    print_coverage(found, len(damage))
    raise SystemExit(2 if damage else 0)


def print_coverage(found: Inventory, damaged: int) -> None:
    """Print how many files were checked and how many could not be."""
    size = f"{found.bytes / 1e6:,.1f} MB"
    if damaged and found.files:
        say(f"{damaged:,} damaged, of {len(found.files):,} files that have digests ({size})")
    elif found.files:
        say(f"all {len(found.files):,} files are as they were written ({size})")
    for scan in found.scans_without:
        say(
            f"{scan} was written before files had digests: its scan could only be checked for "
            "lengths and ranges"
        )
    if found.results_without:
        count = len(found.results_without)
        say(f"{count:,} results and figures have no digest and were not checked")


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal while files are read."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.advance(task, size)
