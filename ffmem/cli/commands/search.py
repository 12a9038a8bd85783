"""`ffmem search DIR --token TEXT`: memories by the token they promote or end in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.options import ANY, LOCATION, names_damage
from ffmem.errors import StoreError

if TYPE_CHECKING:
    from ffmem.store.lookup import MemoryIndex


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--token",
    required=True,
    help="The token; a word without a leading space is also tried with one.",
)
@click.option(
    "-n", "--count", type=ANY, default=20, show_default=True, help="Memories shown of each kind."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@names_damage
def search(folder: Path, token: str, count: int, as_json: bool) -> None:
    r"""Find memories of the scan in FOLDER by a token.

    Lists the values that promote it (direct logit effect), and the keys whose triggers end in it.

    \b
    Example:
        ffmem search out/scan --token " Paris"
    """
    from ffmem.store.lookup import MemoryIndex
    from ffmem.store.scan_store import ScanStore

    lookup = MemoryIndex.at_once(ScanStore.open(folder))
    ids = lookup.token_ids(token)
    if not ids:
        raise StoreError(
            f"{token!r} is not a token of this model, nor is {' ' + token!r}; give one token, such "
            "as the first part of a long word"
        )
    token = lookup.words[ids[0]]
    found = {
        "promoted by": [row for one in ids for row in promoters(lookup, one, count)],
        "triggers end in it": [row for one in ids for row in enders(lookup, one, count)],
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"values that promote {token!r} (rank 0 is the strongest token):")
    for hit in found["promoted by"] or [{}]:
        click.echo("  {address:<12} rank {rank}".format(**hit) if hit else "  none")
    click.echo(f"keys whose triggers end in {token!r}:")
    for hit in found["triggers end in it"] or [{}]:
        click.echo("  {address:<12} {triggers} triggers".format(**hit) if hit else "  none")


def promoters(lookup: MemoryIndex, token: int, count: int) -> list[dict[str, Any]]:
    """The cells whose value ranks a token highest (0 is the top), then by probability."""
    found = lookup.promoters(token)
    rows, ranks = found.rows[:count], found.scores[:count]
    names = map(str, lookup.store.cells.addresses(rows))
    numbers = zip(
        names, ranks.tolist(), lookup.statistic("probability")[rows].tolist(), strict=True
    )
    return [dict(zip(("address", "rank", "probability"), each, strict=True)) for each in numbers]


def enders(lookup: MemoryIndex, token: int, count: int) -> list[dict[str, Any]]:
    """The cells with most triggers that end in a token."""
    found = lookup.ending_in(token)
    names = map(str, lookup.store.cells.addresses(found.rows[:count]))
    counts = found.scores[:count].tolist()
    return [
        {"address": name, "triggers": triggers}
        for name, triggers in zip(names, counts, strict=True)
    ]
