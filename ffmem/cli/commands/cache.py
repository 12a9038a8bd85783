"""`ffmem cache`: what is kept on this machine so that it is paid for once; list, size, clear."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ffmem.cli.output import print_hanging, terminal

if TYPE_CHECKING:
    from ffmem.disk_cache import CacheEntry

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
    r"""List, measure and clear the cache: what is kept on this machine for later runs.

    It lies in $FFMEM_CACHE, or in the folder ffmem of $XDG_CACHE_HOME (else of ~/.cache).
    Everything in it can be removed at any time: commands compute or download it again.

    \b
    Examples:
        ffmem cache list
        ffmem cache clear
    """


@cache.command("list")
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def list_entries(kind: str | None, as_json: bool) -> None:
    """List the kinds of things in the cache, or every entry of one KIND."""
    from ffmem.disk_cache import cache_entries, cache_kinds
    from ffmem.store.result_files import to_plain

    if kind is not None:
        refuse_unknown(kind, cache_kinds())
    entries = [one for one in cache_entries() if kind in (None, one.kind)]
    if as_json:
        click.echo(json.dumps(to_plain(entries), indent=1, ensure_ascii=False))
    elif kind is None:
        print_kinds(entries)
    else:
        for one in entries:
            click.echo(f"{size_text(one.bytes):>10}  {one.about or one.name}")


@cache.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def size(as_json: bool) -> None:
    """Print the size of the cache and its folder."""
    from ffmem.disk_cache import cache_entries
    from ffmem.locations import cache_folder

    total, where = sum(entry.bytes for entry in cache_entries()), cache_folder()
    if as_json:
        click.echo(json.dumps({"folder": str(where), "bytes": total}))
    else:
        click.echo(f"{size_text(total)} in {where}")


@cache.command()
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@click.option(
    "--all", "everything", is_flag=True, help="Also clear what was downloaded or paid for."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def clear(kinds: tuple[str, ...], everything: bool, as_json: bool) -> None:
    r"""Remove everything of each KIND from the cache.

    Without a KIND, clears what can be computed again from models on this machine: gguf, values,
    digests. What was downloaded or paid for (models, stores, replies) stays, unless it is named or
    --all is given.

    \b
    Examples:
        ffmem cache clear
        ffmem cache clear stores replies
    """
    from ffmem.disk_cache import FROM_WEIGHTS, cache_kinds, clear_cache

    if kinds and everything:
        raise click.UsageError("--all removes every kind; leave the kinds or --all out")
    there = cache_kinds()
    for kind in kinds:
        refuse_unknown(kind, there)
    removed = clear_cache(kinds or (there if everything else FROM_WEIGHTS))
    click.echo(json.dumps({"bytes": removed}) if as_json else f"removed {size_text(removed)}")


def refuse_unknown(kind: str, there: list[str]) -> None:
    """Refuse the name of something that is not in the cache and never is."""
    if kind not in {*there, *ABOUT}:
        known = ", ".join(sorted({*there, *ABOUT}))
        raise click.UsageError(f"the cache has nothing of the kind {kind!r}; its kinds are {known}")


def print_kinds(entries: list[CacheEntry]) -> None:
    """A line for each kind, with its number of entries and its size."""
    from ffmem.locations import cache_folder
    from ffmem.models.pypi_models import WHEELS

    for kind in sorted({entry.kind for entry in entries}):
        sizes = [entry.bytes for entry in entries if entry.kind == kind]
        about = WHEELS[kind].about if kind in WHEELS else ABOUT.get(kind, "")
        shown = f"{len(sizes):,} {'entry' if len(sizes) == 1 else 'entries'}".rjust(14)
        print_hanging(terminal(), f"{kind:<10}{shown}  {size_text(sum(sizes)):>10}  ", about)
    total = sum(entry.bytes for entry in entries)
    click.echo(f"{size_text(total)} in {cache_folder()}")


def size_text(size: int) -> str:
    """A number of bytes as people read it."""
    if size < 10**5:
        return f"{size / 1e3:,.1f} kB"
    return f"{size / 1e9:,.2f} GB" if size >= 10**9 else f"{size / 1e6:,.1f} MB"
