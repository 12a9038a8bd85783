"""What lies on the disk: `ffmem verify` checks a scan, `ffmem cache` shows what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ffmem.cli.options import json_option
from ffmem.cli.output import print_hanging, print_json, say, terminal
from ffmem.cli.parameters import LOCATION
from ffmem.text import size_text

if TYPE_CHECKING:
    from ffmem.files.disk_cache import CacheEntry
    from ffmem.store.verification import Inventory


@click.command()
@click.argument("folder", type=LOCATION)
def verify(folder: Path) -> None:
    r"""Check every file of the scan in FOLDER, and of its search index, against its digest.

    Prints a line for each file that is damaged or missing, with what to do, and exits with code 2
    if there is one. FOLDER may be a URL.

    \b
    Example:
        ffmem verify out/scan
    """
    from ffmem.store.verification import inventory, lasting_damage

    found = inventory(folder)
    with progress(found.bytes) as watch:
        damage = lasting_damage(folder, list(found.all_damage(watch)))
    for one in damage:
        say(str(one))
    _print_coverage(found, len(damage))
    raise SystemExit(2 if damage else 0)


def _print_coverage(found: Inventory, damaged: int) -> None:
    """Print how many files were checked and how many could not be."""
    size = size_text(found.bytes)
    if damaged and found.files:
        say(f"{damaged:,} damaged, of {len(found.files):,} files that have digests ({size})")
    elif found.files:
        say(f"all {len(found.files):,} files are as they were written ({size})")


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


ABOUT = {
    "gguf": "GGUF files, unpacked",
    "values": "values of a layer, ranked over the vocabulary",
    "digests": "digests of weights",
    "charts": "the library that draws charts",
    "stores": "scans and studies fetched from a URL",
    "replies": "replies of language models that annotate",
}


@click.group()
def cache() -> None:
    r"""List and clear the cache: what is kept on this machine for later runs.

    It lies in $FFMEM_CACHE, or in the folder ffmem of $XDG_CACHE_HOME (else of ~/.cache).
    Everything in it can be removed at any time: commands compute or download it again.

    \b
    Examples:
        ffmem cache list
        ffmem cache clear
    """


@cache.command("list")
@click.argument("kind", required=False)
@json_option
def list_entries(kind: str | None, as_json: bool) -> None:
    """List the kinds of things in the cache, or every entry of one KIND, with sizes and total."""
    from ffmem.files.disk_cache import cache_entries, cache_kinds

    if kind is not None:
        _refuse_unknown(kind, cache_kinds())
    entries = [one for one in cache_entries() if kind in (None, one.kind)]
    if as_json:
        print_json(entries)
    elif kind is None:
        _print_kinds(entries)
    else:
        for one in entries:
            click.echo(f"{size_text(one.bytes):>10}  {one.about or one.name}")
        _print_total(entries)


@cache.command()
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@click.option(
    "--all", "everything", is_flag=True, help="Also clear what was downloaded or paid for."
)
def clear(kinds: tuple[str, ...], everything: bool) -> None:
    r"""Remove everything of each KIND from the cache.

    Without a KIND, clears what can be computed again from models on this machine: gguf, values,
    digests. What was downloaded or paid for (models, stores, replies) stays, unless it is named or
    --all is given.

    \b
    Examples:
        ffmem cache clear
        ffmem cache clear stores replies
    """
    from ffmem.files.disk_cache import FROM_WEIGHTS, cache_kinds, clear_cache

    if kinds and everything:
        raise click.UsageError("--all removes every kind; leave the kinds or --all out")
    there = cache_kinds()
    for kind in kinds:
        _refuse_unknown(kind, there)
    removed = clear_cache(kinds or (there if everything else FROM_WEIGHTS))
    click.echo(f"removed {size_text(removed)}")


def _refuse_unknown(kind: str, there: list[str]) -> None:
    """Refuse the name of something that is not in the cache and never is."""
    if kind not in {*there, *ABOUT}:
        known = ", ".join(sorted({*there, *ABOUT}))
        raise click.UsageError(f"the cache has nothing of the kind {kind!r}; its kinds are {known}")


def _print_kinds(entries: list[CacheEntry]) -> None:
    """A line for each kind, with its number of entries and its size."""
    from ffmem.models.pypi_models import WHEELS

    for kind in sorted({entry.kind for entry in entries}):
        sizes = [entry.bytes for entry in entries if entry.kind == kind]
        about = WHEELS[kind].about if kind in WHEELS else ABOUT.get(kind, "")
        shown = f"{len(sizes):,} {'entry' if len(sizes) == 1 else 'entries'}".rjust(14)
        print_hanging(terminal(), f"{kind:<10}{shown}  {size_text(sum(sizes)):>10}  ", about)
    _print_total(entries)


def _print_total(entries: list[CacheEntry]) -> None:
    """The size of all, and the cache folder."""
    from ffmem.locations import cache_folder

    click.echo(f"{size_text(sum(entry.bytes for entry in entries))} in {cache_folder()}")
