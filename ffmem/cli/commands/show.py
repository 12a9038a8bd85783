"""`ffmem show DIR ADDRESS`: one memory (MLP neuron), with its triggers in source text."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from ffmem.cli.options import ANY, LOCATION, names_damage
from ffmem.cli.output import print_hanging, say, terminal
from ffmem.errors import visible_token

if TYPE_CHECKING:
    from rich.text import Text

    from ffmem.address import Address
    from ffmem.store.memory_page import MemoryPage
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.slots import Trigger


class TokenChange(TypedDict):
    """A token of a trigger, and how the coefficient changes without it, in percent."""

    token: str
    change: float | None


@dataclass(frozen=True)
class ShownPage:
    """A page with the triggers, or the sample, to show; `saliency` by a trigger's place."""

    page: MemoryPage
    triggers: list[Trigger]
    saliency: dict[int, list[TokenChange]] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The page as JSON."""
        return {
            "address": str(self.page.address),
            "hook": self.page.address.hook,
            "counts": {k: v for k, v in asdict(self.page.counts).items() if v is not None},
            "promoted": [asdict(push) for push in self.page.promoted],
            "suppressed": [asdict(push) for push in self.page.suppressed],
            "triggers": [
                {k: v for k, v in asdict(one).items() if v is not None}
                | ({"saliency": self.saliency[place]} if place in self.saliency else {})
                for place, one in enumerate(self.triggers)
            ],
            "histogram": asdict(histogram) if (histogram := self.page.histogram) else None,
            "probability": self.page.probability,
            "uniform": self.page.uniform,
            "bands": [asdict(band) for band in self.page.bands],
            "weights": self.page.weights,
        }


@click.command()
@click.argument("folder", type=LOCATION)
@click.argument("address")
@click.option("-n", "--count", type=ANY, default=10, show_default=True, help="Triggers shown.")
@click.option("--sample", is_flag=True, help="Show the random sample instead of the strongest.")
@click.option(
    "--bands", is_flag=True, help="Also show weaker examples, by size of the coefficient."
)
@click.option(
    "--saliency",
    "salient",
    is_flag=True,
    help="Shade each token by what its removal changes (runs the model).",
)
@click.option(
    "--key",
    "with_key",
    is_flag=True,
    help="Also show the tokens whose embedding is nearest to the key (loads the model).",
)
@click.option(
    "--wakes",
    metavar="ADDRESS",
    help="Also show v . k, how much its value excites a later memory (loads the model).",
)
@click.option(
    "--picture",
    type=LOCATION,
    help="Draw triggers and value tokens into a .svg or .png file instead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@names_damage
def show(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    address: str,
    count: int,
    sample: bool,
    bands: bool,
    salient: bool,
    with_key: bool,
    wakes: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    r"""Show the memory (MLP neuron) ADDRESS of the scan in FOLDER: triggers, value tokens, counts.

    Triggers are the prefixes with the highest coefficient (max-activating examples); value tokens
    are those that its output weights promote (logit lens).

    The last token read is underlined, the next token is in [brackets]; ×6 stands for six triggers
    in a row with this prefix. With --saliency each token is removed in turn: the redder its
    background, the more the coefficient falls without it. --key lists the tokens whose embedding is
    nearest to the key, from the weights alone.

    \b
    Example:
        ffmem show out/scan L2.7
    """
    from ffmem.address import Address
    from ffmem.store.lookup import MemoryIndex
    from ffmem.store.memory_page import memory_pages
    from ffmem.store.scan_store import ScanStore

    wanted, store = Address.parse(address), ScanStore.open(folder)
    store.cells.resolve(wanted)  # a wrong address is named before any table is read
    index = MemoryIndex.at_once(store)
    pages = memory_pages(index, wanted)
    if picture is not None:
        draw(pages[0], picture, count)
        return
    shown = [ShownPage(page, list(page.sample if sample else page.triggers)) for page in pages]
    if salient:
        add_saliency(index.store, shown, count)
    keys = key_facts(index.store, shown[0].page.address, wakes) if with_key or wakes else {}
    if as_json:
        data = [{**one.data(), **keys} for one in shown]
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for one in shown:
        print_page(one, count)
        if bands:
            print_bands(one.page)
    for name, fact in keys.items():
        print_hanging(terminal(), f"  {name}: ", key_line(fact))


def key_facts(store: ScanStore, address: Address, wakes: str | None) -> dict[str, Any]:
    """What the weights say of a key without any text: near tokens, and the link to a later key."""
    from ffmem.memories.folded_weights import key_tokens, wake_up_link
    from ffmem.studies.inputs import scanned_model

    model = scanned_model(store)
    facts: dict[str, Any] = {}
    for side in ("key", "gate") if model.layer_of(address).gated else ("key",):
        found = key_tokens(model, address, 10, side)
        pairs = zip(found.tokens[0].tolist(), found.logits[0].tolist(), strict=True)
        facts[f"{side} near"] = [
            {"token": model.token_text(token), "cosine": round(cosine, 4)}
            for token, cosine in pairs
        ]
    if wakes is not None:
        facts[f"wakes {wakes}"] = asdict(wake_up_link(model, address, wakes))
    return facts


def key_line(fact: Any) -> str:
    """Tokens with their cosines, or the numbers of a link, in a line."""
    if isinstance(fact, list):
        return "  ".join(f"{visible_token(one['token'])}\u00a0{one['cosine']:.2f}" for one in fact)
    return ", ".join(f"{name} {value:.4f}" for name, value in fact.items() if value is not None)


def draw(page: MemoryPage, picture: Path, count: int) -> None:
    """Save one cell as a picture."""
    from ffmem.figures.memory import memory_chart
    from ffmem.figures.saving import save_picture

    save_picture(memory_chart(page, count), picture)
    say(f"-> {picture}")


def print_page(shown: ShownPage, count: int) -> None:
    """Print one cell for a person."""
    from ffmem.store.memory_page import fold_equal, times_text, token_line

    console, page = terminal(), shown.page
    console.print(str(page.address), style="bold")
    print_hanging(console, "  ", page.frequency)
    if page.address.hook:
        print_hanging(console, "  ", f"{page.address.hook} in TransformerLens, layers from 0")
    print_hanging(console, "  value promotes    ", token_line(page.promoted))
    print_hanging(console, "  value suppresses  ", token_line(page.suppressed))
    if not shown.triggers:
        console.print("  nothing in the corpus fires it")
    places = {id(trigger): place for place, trigger in enumerate(shown.triggers)}
    for trigger, times in fold_equal(shown.triggers, count):
        weight = "" if trigger.weight is None else f"weight {trigger.weight:.3f} "
        head = f"{trigger.coefficient:10.3f} {weight}{times_text(times):<5}"
        saliency = shown.saliency.get(places[id(trigger)])
        print_hanging(console, head, trigger_line(trigger, saliency))


def print_bands(page: MemoryPage) -> None:
    """Print examples from each band of the coefficient."""
    console = terminal()
    for band in page.bands:
        console.print(
            f"  {100 * band.low:.0f} to {100 * band.high:.0f} % of the largest: {band.sampled} of "
            f"{len(page.sample)} random prefixes that fire it"
        )
        for trigger in band.examples:
            print_hanging(
                console, f"{trigger.coefficient:10.3f}       ", trigger_line(trigger, None)
            )


def trigger_line(trigger: Trigger, saliency: list[TokenChange] | None) -> Text:
    """One trigger as a text: the end of the prefix, last token, next token.

    With saliency the whole prefix, redder where a token takes more of the coefficient away.
    """
    from rich.text import Text

    from ffmem.store.memory_page import trigger_text

    line, text = Text(), trigger_text(trigger)
    if saliency is None:
        line.append(text.before).append(text.last, style="underline")
    for place in saliency or ():
        line.append(place["token"], style=ground(place["change"]))
    line.append(text.next, style="bold")
    return line if saliency else line.append(text.rest, style="dim")


def add_saliency(store: ScanStore, pages: list[ShownPage], count: int) -> None:
    """Put the change of the coefficient, token by token, beside the first triggers of each page."""
    from ffmem.analyses.removal import saliency
    from ffmem.studies.inputs import scanned_model

    model, kept = scanned_model(store), store.sentences
    for shown in pages:
        for place, trigger in enumerate(shown.triggers[:count]):
            row, position = kept.row(trigger.sentence), trigger.position
            if position < 2:
                continue  # nothing would be left to read
            found = saliency(model, shown.page.address, kept.token_ids(row)[:position].tolist())
            shown.saliency[place] = [
                {"token": piece, "change": None if math.isnan(change) else round(change, 2)}
                for piece, change in zip(kept.pieces(row), found.changes, strict=False)
            ]


def ground(change: float | None) -> str:
    """The style for a change in percent: red for a loss, blue for a gain, nothing near none."""
    if change is None or abs(change) < 5:
        return ""
    strength = min(abs(change), 100) / 100
    pale = round(235 - 150 * strength)
    red, green, blue = (235, pale, pale) if change < 0 else (pale, pale, 235)
    return f"black on #{red:02x}{green:02x}{blue:02x}"
