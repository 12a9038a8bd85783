"""`ffmem search DIR`: memories by token, words, meaning, pattern, phrase or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ffmem.address import Address
from ffmem.address_space import room_for_model
from ffmem.cli.options import json_option
from ffmem.cli.output import print_columns, print_hanging, print_json, say, terminal
from ffmem.cli.parameters import ANY, LOCATION
from ffmem.errors import StoreError, shorten
from ffmem.text import visible_token

if TYPE_CHECKING:
    from ffmem.analyses.matches import By, Question
    from ffmem.analyses.search import Hit, SearchAnswer
    from ffmem.store.search.columns import Condition
    from ffmem.store.search.lookup import MemoryIndex

PIECES = 16  # tokens listed of a text that is not one token
HEADINGS: dict[By, str] = {  # of hits in a terminal; `{text}` is what was searched for
    "promotes": "{total:,} values {clearly}promote {text}, {order} first, each with its memory's "
    "strongest trigger:",
    "ends": "{total:,} keys {clearly}fire on {text}, those with most triggers that end in it "
    "first, each with the strongest:",
    "words": "memories whose strongest triggers have these words, best first:",
    "meaning": "memories whose strongest triggers are about this, best first:",
    "pattern": "memories that have such a pattern, those of most triggers first:",
    "phrase": "memories that fire after this phrase, strongest first by their largest coefficient:",
}


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--token",
    help="The token; a word without a leading space is also tried with one.",
)
@click.option("--words", help="Words that a trigger must contain, all of them.")
@click.option("--meaning", help="What triggers are about: these words, or words of similar use.")
@click.option("--pattern", help="Letters of a pattern's description or kind.")
@click.option("--phrase", help="A text after whose last token they fire (runs the model).")
@click.option("--layer", type=int, help="Only memories of this layer.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only memories with value_norm>2, class=weakening, fires<10 ... Repeatable.",
)
@click.option("--sort", help="By fires, mean, largest, value_norm ..., the largest first.")
@click.option("--save", type=LOCATION, help="Write the hits to a file, as a set of memories.")
@click.option(
    "-n", "--count", type=ANY, default=20, show_default=True, help="Memories shown of each kind."
)
@json_option
def search(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    layer: int | None,
    conditions: Sequence[str],
    sort: str | None,
    save: Path | None,
    count: int,
    as_json: bool,
    **texts: str | None,
) -> None:
    r"""Find memories of the scan in FOLDER by token, words, meaning, pattern, phrase or numbers.

    Lists the values that promote the token (direct logit effect), and the keys whose triggers end
    in it: those in which it is clear, if there are any. --words and --meaning look at the 25
    strongest triggers of every memory. --where and --sort take what a scan counts (fires,
    fire_rate, positive, mean, largest, probability, layer; --where also sign and expert), agreement
    after `ffmem analyse FOLDER --only values`, and every column of the weights after `--only
    weights`. --save writes the addresses to a file for `--set @FILE`.

    \b
    Examples:
        ffmem search out/scan --token " Paris"
        ffmem search out/scan --meaning "naval battle" --where "layer>=12"
        ffmem search out/scan --where class=weakening --save weakening.txt
    """
    from ffmem.analyses.matches import Question, check_layer
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.search.columns import Condition
    from ffmem.store.search.lookup import MemoryIndex

    given = {name: text for name, text in texts.items() if text is not None}
    if len(given) > 1:
        one, *others = (f"--{name}" for name in given)
        raise click.UsageError(f"{one} and {', '.join(others)} are different questions; give one")
    index = MemoryIndex.at_once(ScanStore.open(folder))
    wanted = [Condition.parse(text) for text in conditions]
    index.where([*wanted, *_sortable(sort)])  # an unknown name is refused at once
    if not given and sort is None and not (conditions or layer):
        raise click.UsageError(
            "search for what? give --token, --words, --meaning, --pattern, --phrase, --where or "
            "--sort"
        )
    ((name, text),) = given.items() or [("any", "")]
    if name == "token" and not index.token_ids(text):
        raise StoreError(_not_a_token(index, text))
    order = {"layer": layer, "sort": sort or "score", "where": ", ".join(conditions)}
    kinds = ("promotes", "ends") if name == "token" else (name,)
    questions = [Question(by=cast("By", kind), text=text, **cast("Any", order)) for kind in kinds]
    check_layer(index.store, layer)
    answers = [_found_by(index, question, count) for question in questions]
    answers = [_clear_or_all(index, found, count) for found in answers]
    _save_addresses(save, [hit.address for one in answers for hit in one.hits], folder)
    if as_json:
        print_json(dict(zip(kinds, answers, strict=True)) if len(answers) > 1 else answers[0])
        return
    for found in answers:
        columns = [*([sort] if sort else []), *(condition.column for condition in wanted)]
        _print_hits(index, found, list(dict.fromkeys(columns)))


def _found_by(index: MemoryIndex, question: Question, count: int) -> SearchAnswer:
    """The answer; words are read by meaning, and the model is run, only where that is asked for."""
    from ffmem.analyses.matches import MemorySearch
    from ffmem.analyses.search import answer

    if question.by == "meaning":
        from ffmem.analyses.inputs.related_words import open_related_words

        return answer(MemorySearch(index, open_related_words(index.store)), question, 0, count)
    firing = None
    if question.by == "phrase":
        room_for_model()
        from ffmem.analyses.inputs.phrase_coefficients import firing_on
        from ffmem.analyses.inputs.study_inputs import scanned_model

        firing = firing_on(scanned_model(index.store), index.store, question.text)
    return answer(MemorySearch(index), question, 0, count, firing)


def _clear_or_all(index: MemoryIndex, found: SearchAnswer, count: int) -> SearchAnswer:
    """Of the memories found by a token those in which it is clear, or all where it is in none."""
    asked = found.question
    if asked.by not in ("promotes", "ends") or asked.sort != "score":
        return found
    clear = _found_by(index, replace(asked, clear=True), count)
    return clear if clear.hits else found


def _not_a_token(lookup: MemoryIndex, text: str) -> str:
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


def _sortable(sort: str | None) -> list[Condition]:
    """A condition that every number fulfils, so that an unknown name is refused like any other."""
    from ffmem.store.search.columns import Condition
    from ffmem.store.search.lookup import TEXTS

    if sort in TEXTS:
        raise click.UsageError(f"{sort} is text and has no order; use --where {sort}=...")
    return [] if sort is None else [Condition(sort, ">=", "-inf")]


def _save_addresses(path: Path | None, addresses: Sequence[str], folder: Path) -> None:
    """Write a set of memories, each once."""
    if path is None:
        return
    from ffmem.files.whole_files import write_text
    from ffmem.memories.edits import set_text

    if not addresses:
        raise StoreError(f"nothing was found, so {path} was not written; ask for more")
    found = list(dict.fromkeys(Address.parse(one) for one in addresses))
    write_text(path, set_text(found, f"{len(found)} memories found in {folder}"))
    say(f"-> {path}", err=True)


def _print_hits(index: MemoryIndex, found: SearchAnswer, columns: list[str]) -> None:
    """A heading, and a line for each hit."""
    asked, console = found.question, terminal()
    if asked.by == "any":
        _print_numbers(index, found, columns)
        return
    if not found.hits and asked.by not in ("promotes", "ends"):
        say("no memory is like that; try one word, or another form of it")
        return
    heading = HEADINGS[asked.by].format(
        total=found.total,
        text=visible_token(asked.text),
        clearly="clearly " if asked.clear else "",
        order="those that add most to it" if asked.clear else "those that rank it highest",
    )
    if asked.by == "pattern":
        say(f"patterns are known of {100 * found.looked_at:.2g} % of the memories", err=True)
    print_hanging(console, "", heading, "bold")
    for hit in found.hits:
        print_hanging(console, f"  {hit.address:<10}{score_text(asked.by, hit)}  ", why_text(hit))


def score_text(by: By, hit: Hit) -> str:
    """How well a memory fits."""
    score = hit.score or 0.0
    match by:
        case "promotes":
            return f"rank {score + 1:>2.0f}, logit {hit.logit or 0.0:+.2f}"
        case "meaning":
            return f"nearness {score:.3f}"
        case "pattern" | "phrase":
            return f"{100 * score:>3.0f} %"
        case _:
            return f"{score:>3.0f} triggers"


def why_text(hit: Hit) -> str:
    """The pattern and the trigger that a memory was found by."""
    parts = (hit.pattern, None if hit.evidence is None else str(hit.evidence))
    return "  ".join(filter(None, parts)) or "nothing in the corpus"


def _print_numbers(index: MemoryIndex, found: SearchAnswer, columns: list[str]) -> None:
    """One line per cell: its address and the numbers that were asked about."""
    if not found.hits:
        say("no memory is like that; ask for less")
        return
    sort = found.question.sort
    order = "in order of address" if sort == "score" else f"largest {sort} first"
    shown = f"{len(found.hits):,} of {found.total:,} memories, {order}:"
    terminal().print(shown, style="bold")
    places = [index.store.cells.row(Address.parse(hit.address)) for hit in found.hits]
    numbers = [map(number_text, index.statistic(name)[places].tolist()) for name in columns]
    rows = zip((f"  {hit.address}" for hit in found.hits), *numbers, strict=True)
    print_columns(["  memory", *columns], [list(row) for row in rows])


def number_text(value: Any) -> str:
    """A number of a cell, or the name of its class."""
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
