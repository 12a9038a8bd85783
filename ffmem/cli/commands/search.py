"""`ffmem search DIR --token TEXT`: memories by the token they promote or end in, or by number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.address import Address
from ffmem.cli.options import ANY, LOCATION, names_damage
from ffmem.cli.output import print_columns, print_hanging, say, terminal
from ffmem.errors import StoreError, shorten, visible_token

if TYPE_CHECKING:
    from ffmem.address import Address
    from ffmem.store.cells import CellRows
    from ffmem.store.lookup import Matches, MemoryIndex
    from ffmem.store.weight_columns import Condition

PIECES = 16  # tokens listed of a text that is not one token


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--token",
    help="The token; a word without a leading space is also tried with one.",
)
@click.option("--words", help="Words that a trigger must contain, all of them.")
@click.option("--meaning", help="What triggers are about: these words, or words of similar use.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only memories with value_norm>2, class=weakening, fires<10 ... Repeatable.",
)
@click.option("--sort", help="Without --token: by fires, mean, largest, value_norm ...")
@click.option("--save", type=LOCATION, help="Write the hits to a file, as a set of memories.")
@click.option(
    "-n", "--count", type=ANY, default=20, show_default=True, help="Memories shown of each kind."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@names_damage
def search(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    token: str | None,
    words: str | None,
    meaning: str | None,
    conditions: Sequence[str],
    sort: str | None,
    save: Path | None,
    count: int,
    as_json: bool,
) -> None:
    r"""Find memories of the scan in FOLDER by token, words, meaning or numbers.

    Lists the values that promote the token (direct logit effect), and the keys whose triggers end
    in it. --words and --meaning look at the 25 strongest triggers of every memory: for the words
    themselves, or also for words that occur in the same contexts in the scanned text. --where and
    --sort take what a scan counts (fires, fire_rate, positive, mean, largest, probability, layer,
    sign, expert), agreement after `ffmem analyse FOLDER --only values`, and every column of the
    weights after `--only weights`. --save writes the addresses to a file for `--set @FILE`.

    \b
    Examples:
        ffmem search out/scan --token " Paris"
        ffmem search out/scan --meaning "naval battle" --where "layer>=12"
        ffmem search out/scan --where class=weakening --save weakening.txt
    """
    from ffmem.store.lookup import MemoryIndex
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.weight_columns import Condition

    lookup = MemoryIndex.at_once(ScanStore.open(folder))
    wanted = [Condition.parse(text) for text in conditions]
    if sum(one is not None for one in (token, words, meaning)) > 1:
        raise click.UsageError("--token, --words and --meaning are three questions; give one")
    if words is not None or meaning is not None:
        hits = by_words(lookup, words, meaning, (wanted, count))
        save_addresses(save, [hit["address"] for hit in hits], folder)
        print_word_hits(hits, as_json, "have these words" if meaning is None else "are about this")
        return
    if token is None:
        if not conditions and sort is None:
            raise click.UsageError(
                "search for what? give --token, --words, --meaning, --where or --sort"
            )
        hits, total = by_number(lookup, wanted, sort, count)
        save_addresses(save, [hit["address"] for hit in hits], folder)
        order = "in order of address" if sort is None else f"largest {sort} first"
        print_numbers(hits, f"{len(hits):,} of {total:,} memories, {order}:", as_json)
        return
    by_token(lookup, token, (wanted, count), (save, as_json))


def by_token(
    lookup: MemoryIndex,
    token: str,
    how: tuple[Sequence[Condition], int],
    into: tuple[Path | None, bool],
) -> None:
    """Print the values that promote a token, and the keys whose triggers end in it."""
    (wanted, count), (save, as_json) = how, into
    ids = lookup.token_ids(token)
    if not ids:
        raise StoreError(not_a_token(lookup, token))
    token = lookup.words[ids[0]]
    promoting = [lookup.promoters(one) for one in ids]
    ending = [lookup.ending_in(one) for one in ids]
    found = {
        "promoted by": [row for one in promoting for row in promoters(lookup, one, count)],
        "triggers end in it": [
            row
            for one, each in zip(ids, ending, strict=True)
            for row in ending_cells(lookup, each, one, count)
        ],
    }
    if wanted:
        found = {kind: keep_where(lookup, wanted, hits) for kind, hits in found.items()}
    save_addresses(
        save, [hit["address"] for hits in found.values() for hit in hits], lookup.store.folder.root
    )
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    values, keys = (sum(one.total for one in each) for each in (promoting, ending))
    console = terminal()
    name = visible_token(token)
    print_hanging(
        console,
        "",
        f"{values:,} values promote {name}, those that rank it highest first, each with its "
        "memory's strongest trigger:",
        "bold",
    )
    for hit in found["promoted by"]:
        place = f"rank {hit['rank'] + 1:>2}, logit {hit['logit']:+.2f}"
        print_hanging(console, f"  {hit['address']:<10}{place}  ", hit["trigger"])
    print_hanging(
        console,
        "",
        f"{keys:,} keys have triggers that end in {name}, those with most first, each with the "
        "strongest:",
        "bold",
    )
    for hit in found["triggers end in it"]:
        print_hanging(
            console, f"  {hit['address']:<10}{hit['triggers']:>3} triggers  ", hit["trigger"]
        )


def not_a_token(lookup: MemoryIndex, text: str) -> str:
    """Why a text cannot be searched for, and into which tokens it can be cut."""
    pieces = lookup.pieces(text)
    if len(pieces) < 2:
        return (
            f"{shorten(text)!r} is not a token of this model; give one, such as the first part of "
            "a word"
        )
    parts = ", ".join(map(repr, pieces[:PIECES])) + (" ..." if len(pieces) > PIECES else "")
    return (
        f"{shorten(text)!r} is not one token of this model but {len(pieces)}: {parts}; search for "
        "one"
    )


def trigger_ends(lookup: MemoryIndex, rows: CellRows, ranks: Sequence[int]) -> list[str]:
    """The end of one trigger of each of some cells, with the next token in brackets."""
    from ffmem.store.memory_page import trigger_text
    from ffmem.store.slots import single_triggers

    texts = [
        None if trigger is None else trigger_text(trigger, 40)
        for trigger in single_triggers(lookup.store, rows, ranks)
    ]
    return [
        "nothing in the corpus" if text is None else f"{text.before}{text.last}{text.next}"
        for text in texts
    ]


def by_words(
    lookup: MemoryIndex,
    words: str | None,
    meaning: str | None,
    how: tuple[Sequence[Condition], int],
) -> list[dict[str, Any]]:
    """The cells whose triggers hold some words, or are about them, each with its best trigger."""
    from ffmem.patterns.related_words import open_related_words
    from ffmem.store.memory_page import evidence
    from ffmem.store.search_index import words_in

    conditions, count = how
    weights = dict.fromkeys(words_in(words or ""), 1.0)
    if meaning is not None:
        weights, asked = open_related_words(lookup.store).weights(meaning)
    found = lookup.with_words(words) if words is not None else lookup.with_weights(weights, asked)
    rows, scores = found.rows, found.scores
    if conditions:
        holds = lookup.where(conditions)[rows]
        rows, scores = rows[holds], scores[holds]
    rows, scores = rows[:count], scores[:count]
    ranks = lookup.best_triggers(rows, weights) if len(rows) else []
    cells = lookup.store.cells.addresses(rows)
    return [
        {
            "address": str(cell),
            "score": score,
            "trigger": str(evidence(lookup.store.triggers(cell)[rank], rank + 1, weights)),
        }
        for cell, score, rank in zip(cells, scores.tolist(), ranks, strict=True)
    ]


def print_word_hits(hits: list[dict[str, Any]], as_json: bool, what: str) -> None:
    """One line per cell: its address, score and the trigger that fits best, words in stars."""
    if as_json:
        click.echo(json.dumps(hits, indent=2))
        return
    if not hits:
        say(f"no memory has strong triggers that {what}; try one word, or another form of it")
        return
    console = terminal()
    console.print(f"memories whose strongest triggers {what}, best first:", style="bold")
    for hit in hits:
        score = score_text(hit["score"])
        print_hanging(console, f"  {hit['address']:<10}{score}  ", hit["trigger"])


def score_text(score: float) -> str:
    """How well a cell's triggers fit: how many of them have the words, or how near they are."""
    if isinstance(score, float):
        return f"nearness {score:.3f}"
    return f"{score:>2} triggers"


def by_number(
    lookup: MemoryIndex, conditions: Sequence[Condition], sort: str | None, count: int
) -> tuple[list[dict[str, Any]], int]:
    """The first cells that conditions hold for, by number or address, and how many there are."""
    import numpy as np

    rows = np.flatnonzero(lookup.where([*conditions, *sortable(sort)]))
    names = list(dict.fromkeys([*([sort] if sort else []), *(one.column for one in conditions)]))
    if sort is not None:
        rows = rows[np.argsort(-lookup.statistic(sort)[rows], kind="stable")]
    rows, total = rows[:count], len(rows)
    columns = [lookup.statistic(name)[rows].tolist() for name in names]
    addresses = map(str, lookup.store.cells.addresses(rows))
    cells = zip(addresses, *columns, strict=True)
    return [dict(zip(("address", *names), row, strict=True)) for row in cells], total


def sortable(sort: str | None) -> list[Condition]:
    """A condition that every number fulfils, so that an unknown name is refused like any other."""
    from ffmem.store.lookup import TEXTS
    from ffmem.store.weight_columns import Condition

    if sort in TEXTS:
        raise click.UsageError(f"{sort} is text and has no order; use --where {sort}=...")
    return [] if sort is None else [Condition(sort, ">=", "-inf")]


def keep_where(
    lookup: MemoryIndex, conditions: Sequence[Condition], hits: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Those of some hits that conditions hold for."""
    holds, cells = lookup.where(conditions), lookup.store.cells
    return [hit for hit in hits if holds[cells.row(Address.parse(hit["address"]))]]


def save_addresses(path: Path | None, addresses: Sequence[str], folder: Path) -> None:
    """Write a set of memories, each once."""
    if path is None:
        return
    from ffmem.cli.output import save_text
    from ffmem.memories.edits import set_text

    if not addresses:
        raise StoreError(f"nothing was found, so {path} was not written; ask for more")
    found = list(dict.fromkeys(Address.parse(one) for one in addresses))
    save_text(path, set_text(found, f"{len(found)} memories found in {folder}"))
    say(f"-> {path}", err=True)


def print_numbers(hits: list[dict[str, Any]], heading: str, as_json: bool) -> None:
    """One line per cell: its address and the numbers that were asked about."""
    if as_json:
        click.echo(json.dumps(hits, indent=2))
        return
    if not hits:
        say("no memory is like that; ask for less")
        return
    terminal().print(heading, style="bold")
    names = [name for name in hits[0] if name != "address"]
    rows = [[f"  {hit['address']}", *(number_text(hit[name]) for name in names)] for hit in hits]
    print_columns(["  memory", *names], rows)


def number_text(value: Any) -> str:
    """A number of a cell, or the name of its class."""
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def promoters(lookup: MemoryIndex, found: Matches, count: int) -> list[dict[str, Any]]:
    """The cells whose value ranks a token highest (0 is the top), then by probability."""
    rows, ranks = found.rows[:count], found.scores[:count].tolist()
    cells = lookup.store.cells.addresses(rows)
    sure = lookup.statistic("probability")[rows].tolist()
    triggers = trigger_ends(lookup, rows, [0] * len(rows))
    return [
        {
            "address": str(cell),
            "rank": rank,
            "probability": probability,
            "logit": lookup.value_tokens(cell)[rank].logit,
            "trigger": trigger,
        }
        for cell, rank, probability, trigger in zip(cells, ranks, sure, triggers, strict=True)
    ]


def ending_cells(
    lookup: MemoryIndex, found: Matches, token: int, count: int
) -> list[dict[str, Any]]:
    """The cells with most triggers that end in a token, each with the strongest of those."""
    rows, counts = found.rows[:count], found.scores[:count].tolist()
    cells = lookup.store.cells.addresses(rows)
    texts = trigger_ends(lookup, rows, lookup.first_endings(rows, token))
    return [
        {"address": str(cell), "triggers": triggers, "trigger": text}
        for cell, triggers, text in zip(cells, counts, texts, strict=True)
    ]
