"""`ffmem search DIR --token TEXT`: memories by the token they promote or end in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.options import ANY, LOCATION, names_damage
from ffmem.cli.terminal import print_hanging, terminal, visible_token
from ffmem.errors import StoreError

if TYPE_CHECKING:
    from ffmem.address import Address
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
        raise StoreError(not_a_token(lookup, token))
    token = lookup.words[ids[0]]
    found = {
        "promoted by": [row for one in ids for row in promoters(lookup, one, count)],
        "triggers end in it": [row for one in ids for row in enders(lookup, one, count)],
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    promoting, ending = (
        sum(question(one).total for one in ids) for question in (lookup.promoters, lookup.ending_in)
    )
    console = terminal()
    console.print(f"{promoting:,} values promote {visible_token(token)}, best first:", style="bold")
    for hit in found["promoted by"]:
        place = f"rank {hit['rank'] + 1:>2}, logit {hit['logit']:+.2f}"
        print_hanging(console, f"  {hit['address']:<10}{place}  ", f"on {hit['trigger']}")
    console.print(f"{ending:,} keys have triggers that end in it, most first:", style="bold")
    for hit in found["triggers end in it"]:
        head = f"  {hit['address']:<10}{hit['triggers']:>3} triggers       "
        print_hanging(console, head, f"on {hit['trigger']}")


def not_a_token(lookup: MemoryIndex, text: str) -> str:
    """Why a text cannot be searched for, and into which tokens it can be cut."""
    pieces = lookup.pieces(text)
    if len(pieces) < 2:
        return f"{text!r} is not a token of this model; give one, such as the first part of a word"
    parts = ", ".join(map(repr, pieces))
    return f"{text!r} is not one token of this model but {len(pieces)}: {parts}; search for one"


def strongest_trigger(lookup: MemoryIndex, cell: Address) -> str:
    """The end of a cell's strongest trigger, with the next token in brackets."""
    from ffmem.store.memory_page import trigger_text

    for trigger in lookup.store.triggers(cell)[:1]:
        text = trigger_text(trigger, 40)
        return f"{text.before}{text.last}{text.next}"
    return "nothing in the corpus"


def promoters(lookup: MemoryIndex, token: int, count: int) -> list[dict[str, Any]]:
    """The cells whose value ranks a token highest (0 is the top), then by probability."""
    found = lookup.promoters(token)
    rows, ranks = found.rows[:count], found.scores[:count].tolist()
    cells = lookup.store.cells.addresses(rows)
    sure = lookup.statistic("probability")[rows].tolist()
    return [
        {
            "address": str(cell),
            "rank": rank,
            "probability": probability,
            "logit": lookup.value_tokens(cell)[rank].logit,
            "trigger": strongest_trigger(lookup, cell),
        }
        for cell, rank, probability in zip(cells, ranks, sure, strict=True)
    ]


def enders(lookup: MemoryIndex, token: int, count: int) -> list[dict[str, Any]]:
    """The cells with most triggers that end in a token."""
    found = lookup.ending_in(token)
    cells = lookup.store.cells.addresses(found.rows[:count])
    counts = found.scores[:count].tolist()
    return [
        {"address": str(cell), "triggers": triggers, "trigger": strongest_trigger(lookup, cell)}
        for cell, triggers in zip(cells, counts, strict=True)
    ]
