"""`ffmem search DIR --token TEXT`: memories by the token they promote or end in."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ffmem.cli.numbers import ANY
from ffmem.cli.options import LOCATION
from ffmem.errors import StoreError


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--token", required=True, help="The token, its leading space included: ' Paris'.")
@click.option(
    "-n", "--count", type=ANY, default=20, show_default=True, help="Memories shown of each kind."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def search(folder: Path, token: str, count: int, as_json: bool) -> None:
    r"""Find memories of the scan in FOLDER by a token.

    Lists the values that promote it, and the keys whose triggers end in it.

    \b
    Example:
        ffmem search out/scan --token " Paris"
    """
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.search import Search

    asked = Search(ScanStore.open(folder))
    ids = asked.token_ids(token)
    if not ids:
        raise StoreError(
            f"{token!r} is no token of this model; most words need a leading space, as in ' Paris'"
        )
    found: dict[str, list[dict[str, Any]]] = {
        "promoted by": [row(hit) for token_id in ids for hit in asked.promoters(token_id, count)],
        "triggers end in it": [
            row(hit) for token_id in ids for hit in asked.enders(token_id, count)
        ],
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


def row(hit: Any) -> dict[str, Any]:
    """A hit as plain data, its address as text."""
    return asdict(hit) | {"address": str(hit.address)}
