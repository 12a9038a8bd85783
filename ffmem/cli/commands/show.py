"""`ffmem show DIR ADDRESS`: one memory, with its triggers in source text."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.options import ANY, LOCATION, names_damage

if TYPE_CHECKING:
    from ffmem.address import Address
    from ffmem.store.lookup import MemoryIndex
    from ffmem.store.scan_store import ScanStore
if TYPE_CHECKING:
    from ffmem.store.scan_store import ScanStore


@click.command()
@click.argument("folder", type=LOCATION)
@click.argument("address")
@click.option("-n", "--count", type=ANY, default=10, show_default=True, help="Triggers shown.")
@click.option("--sample", is_flag=True, help="Show the random sample instead of the strongest.")
@click.option(
    "--saliency",
    "salient",
    is_flag=True,
    help="Shade the tokens that the key needs (runs the model).",
)
@click.option(
    "--picture",
    type=LOCATION,
    help="Draw it into a .svg or .png file instead: what fires the key, what the value promises.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@names_damage
def show(  # noqa: PLR0913 - one parameter an option
    folder: Path,
    address: str,
    count: int,
    sample: bool,
    salient: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    r"""Show the memory ADDRESS of the scan in FOLDER: triggers, value tokens, counts.

    The last token read is underlined, the next token is in [brackets]. With --saliency each token
    is removed in turn: the redder its ground, the more of the coefficient goes with it.

    \b
    Example:
        ffmem show out/scan L2.7
    """
    from ffmem.address import Address
    from ffmem.store.lookup import MemoryIndex
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)
    lookup = MemoryIndex.at_once(store)
    if picture is not None:
        draw(store, lookup, store.cells(Address.parse(address))[0], picture, count)
        return
    kind = "sample" if sample else "trigger"
    pages = [page(store, lookup, cell, kind) for cell in store.cells(Address.parse(address))]
    if salient:
        from ffmem.cli.commands.show import add_saliency

        add_saliency(store, pages, count)
    if as_json:
        click.echo(json.dumps(pages, indent=2, ensure_ascii=False))
        return
    for found in pages:
        print_page(found, count)


def draw(store: ScanStore, lookup: MemoryIndex, cell: Address, picture: Path, count: int) -> None:
    """Save one cell as a picture."""
    from ffmem.figures.memory import memory_chart
    from ffmem.figures.saving import save_picture

    save_picture(
        memory_chart(cell, store.triggers(cell), lookup.value_tokens(cell), count), picture
    )
    click.echo(f"-> {picture}")


def page(store: ScanStore, lookup: MemoryIndex, cell: Address, kind: str) -> dict[str, Any]:
    """Everything the store knows of one cell."""
    return {
        "address": str(cell),
        "counts": asdict(store.counts(cell)),
        "promoted": [asdict(push) for push in lookup.value_tokens(cell)],
        "suppressed": [asdict(push) for push in lookup.value_tokens(cell, "suppressed")],
        "triggers": [asdict(trigger) for trigger in store.triggers(cell, kind)],
    }


def print_page(found: dict[str, Any], count: int) -> None:
    """Print one cell for a person."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    counts = found["counts"]
    share = counts["fires"] / max(counts["prefixes"], 1)
    console.print(Text(found["address"], style="bold"))
    console.print(
        f"  fires on {counts['fires']:,} of {counts['prefixes']:,} prefixes ({share:.2%}), "
        f"mean {counts['mean']:.3f}, largest {counts['largest']:.3f}"
    )
    for name in ("promoted", "suppressed"):
        tokens = "  ".join(push["text"].replace(" ", "·") for push in found[name][:10])
        console.print(Text(f"  value {name}: {tokens}"))
    if not found["triggers"]:
        console.print("  nothing in the corpus fires it")
    for trigger in found["triggers"][:count]:
        console.print(trigger_text(trigger))


def trigger_text(trigger: dict[str, Any]) -> Any:
    """One trigger as a line: coefficient, the end of the prefix, last token, next token."""
    from rich.text import Text

    if "saliency" in trigger:
        from ffmem.cli.commands.show import shaded_trigger

        return shaded_trigger(trigger)
    before = trigger["before"]
    line = Text(f"  {trigger['coefficient']:8.3f}  {'…' if len(before) > 90 else ''}{before[-90:]}")
    line.append(trigger["last"], style="underline")
    line.append(f"[{trigger['next']}]" if trigger["next"] else "[end]", style="bold")
    line.append(trigger["rest"][:20], style="dim")
    return line


def add_saliency(store: ScanStore, pages: list[dict[str, Any]], count: int) -> None:
    """Put the change of the coefficient, token by token, into the first triggers of each page."""
    from ffmem.address import Address
    from ffmem.analyses.removal import saliency
    from ffmem.studies.inputs import scanned_model

    model = scanned_model(store)
    for page in pages:
        key = Address.parse(page["address"])
        for trigger in page["triggers"][:count]:
            row, position = store.sentences.row(trigger["sentence"]), trigger["position"]
            if position < 2:
                continue  # nothing would be left to read
            found = saliency(model, key, store.sentences.token_ids(row)[:position].tolist())
            ends = [
                0,
                *store.sentences.token_ends[store.sentences.starts[row] :][:position].tolist(),
            ]
            text = store.sentences.sentence(row)
            trigger["saliency"] = [
                {
                    "token": text[start:end],
                    "change": None if math.isnan(change) else round(change, 2),
                }
                for start, end, change in zip(ends, ends[1:], found.changes, strict=False)
            ]


def shaded_trigger(trigger: dict[str, Any]) -> Any:
    """One trigger as a line, redder where a removed token takes more of the coefficient away."""
    from rich.text import Text

    line = Text(f"  {trigger['coefficient']:8.3f}  ")
    for place in trigger["saliency"]:
        line.append(place["token"], style=ground(place["change"]))
    line.append(f"[{trigger['next']}]" if trigger["next"] else "[end]", style="bold")
    return line


def ground(change: float | None) -> str:
    """The style for a change in percent: red for a loss, blue for a gain, nothing near none."""
    if change is None or abs(change) < 5:
        return ""
    strength = min(abs(change), 100) / 100
    pale = round(235 - 150 * strength)
    red, green, blue = (235, pale, pale) if change < 0 else (pale, pale, 235)
    return f"black on #{red:02x}{green:02x}{blue:02x}"
