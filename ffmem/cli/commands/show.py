"""`ffmem show DIR ADDRESS`: one memory (MLP neuron), with its triggers in source text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ffmem.address_space import room_for_model
from ffmem.cli.options import json_option
from ffmem.cli.output import print_hanging, print_json, say, terminal
from ffmem.cli.parameters import ANY, LOCATION
from ffmem.text import Snippet, cut, cut_end, visible_token

if TYPE_CHECKING:
    from rich.text import Text

    from ffmem.address import Address
    from ffmem.analyses.removal.saliency import TokenEffect, TriggerSaliency
    from ffmem.memories.folded_weights import KeyView, NearToken
    from ffmem.store.memory_page import MemoryPage
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.slots import Trigger


UNRANKED = "the value is not ranked: run `ffmem scan` as before, without --no-values"


@click.command()
@click.argument("folder", type=LOCATION)
@click.argument("address")
@click.option("-n", "--count", type=ANY, default=10, show_default=True, help="Triggers shown.")
@click.option("--sample", is_flag=True, help="Show the random sample instead of the strongest.")
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
    "--text",
    help="Show instead its coefficient at every prefix of a text of your own (runs the model).",
)
@click.option(
    "--picture",
    type=LOCATION,
    help="Draw triggers and value tokens into a .svg or .png file instead.",
)
@json_option
def show(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    address: str,
    count: int,
    sample: bool,
    salient: bool,
    with_key: bool,
    wakes: str | None,
    text: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    r"""Show the memory (MLP neuron) ADDRESS of the scan in FOLDER: triggers, value tokens, counts.

    Triggers are the prefixes with the highest coefficient (max-activating examples); value tokens
    are those that its output weights promote (logit lens).

    The last token read is underlined, the next token is in [brackets]; ×6 stands for six triggers
    in a row with this prefix. With --saliency the redder a token's background, the more the
    coefficient falls without it.

    \b
    Examples:
        ffmem show out/scan L2.7
        ffmem show out/scan L2.7 --text "I love dogs"
    """
    from ffmem.address import Address
    from ffmem.store.memory_page import memory_page
    from ffmem.store.people.memory_labels import label_texts
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.search.lookup import MemoryIndex

    wanted, store = Address.parse(address), ScanStore.open(folder)
    cell = store.cells.resolve(wanted)[0]  # a wrong address is named before any table is read
    if text is not None:
        others = {
            "--sample": sample,
            "--saliency": salient,
            "--key": with_key,
            "--wakes": wakes,
            "--picture": picture,
        }
        if unused := [name for name, given in others.items() if given]:
            raise click.UsageError(f"--text shows coefficients alone; leave out {unused[0]}")
        _show_along(store, cell, text, as_json)
        return
    page = memory_page(MemoryIndex.at_once(store), wanted)
    if picture is not None:
        draw(page, picture, count)
        return
    shown = page.sample if sample else page.triggers
    changes = _token_changes(store, page.address, shown[:count]) if salient else []
    key = _key_facts(store, page.address, wakes) if with_key or wakes else None
    if as_json:
        more = ({"saliency": changes} if salient else {}) | ({"key": key} if key else {})
        print_json(vars(page) | more)
        return
    label = label_texts(store).get(str(page.address), "")
    _print_page(page, label, shown, changes, count)
    if key:
        _print_key(key, wakes)


def _show_along(store: ScanStore, cell: Address, text: str, as_json: bool) -> None:
    """Print the coefficient at every prefix of a text, with what share of the scan's largest it is.

    A row is a prefix, as in the paper: its last token is underlined, the next one in brackets.
    """
    room_for_model()
    from rich.text import Text

    from ffmem.analyses.coefficients.page_coefficients import text_coefficients
    from ffmem.analyses.inputs.study_inputs import scanned_model

    found = text_coefficients(scanned_model(store), cell, text)
    if as_json:
        print_json(found)
        return
    console, counts = terminal(), store.counts(cell)
    bar = counts.threshold or 0.0
    console.print(str(cell), style="bold")
    print_hanging(console, "  ", f"fires above {bar:.3g}; largest in the scan {counts.largest:.3f}")
    following = [*found.tokens[1:], ""]
    for place, coefficient in enumerate(found.coefficients):
        head = f"{coefficient:10.3f} {'fires' if coefficient > bar else '':<6}"
        room = console.width - len(head) - len(found.tokens[place]) - len(following[place]) - 8
        before = cut("".join(found.tokens[:place]), max(room, 1))
        prefix = Snippet(before, found.tokens[place], following[place])
        line = Text(prefix.before).append(prefix.last, "underline")
        print_hanging(console, head, line.append(prefix.following, "bold"))


def _key_facts(store: ScanStore, address: Address, wakes: str | None) -> KeyView:
    """What the weights say of a key without any text: near tokens, and the link to a later key."""
    room_for_model()
    from ffmem.analyses.inputs.study_inputs import scanned_model
    from ffmem.memories.folded_weights import key_view

    return key_view(scanned_model(store), address, wakes)


def _print_key(found: KeyView, wakes: str | None) -> None:
    for name, tokens in (("key near", found.key), ("gate near", found.gate)):
        if tokens:
            print_hanging(terminal(), f"  {name}: ", near_line(tokens))
    if found.link is not None:
        numbers = {name: value for name, value in vars(found.link).items() if value is not None}
        text = ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
        print_hanging(terminal(), f"  wakes {wakes}: ", text)


def near_line(tokens: Sequence[NearToken]) -> str:
    """Tokens with their cosines in a line."""
    return "  ".join(f"{visible_token(one.token)}\u00a0{one.cosine:.2f}" for one in tokens)


def draw(page: MemoryPage, picture: Path, count: int) -> None:
    """Save one cell as a picture."""
    from ffmem.figures.memory import memory_chart
    from ffmem.figures.saving import save_picture

    save_picture(memory_chart(page, count), picture)
    say(f"-> {picture}")


def _print_page(
    page: MemoryPage,
    label: str,
    shown: Sequence[Trigger],
    changes: Sequence[TriggerSaliency],
    count: int,
) -> None:
    """Print one cell for a person, with its label and some of its triggers or of its sample."""
    from ffmem.store.memory_page import fold_equal, times_text, token_line

    console = terminal()
    console.print(str(page.address), style="bold")
    if label:
        print_hanging(console, "  label: ", label)
    print_hanging(console, "  ", page.frequency)
    if page.opposite is not None:
        print_hanging(console, "  ", f"the same memory with the other sign: {page.opposite}")
    if page.hook:
        print_hanging(console, "  ", f"{page.hook} in TransformerLens, layers from 0")
    if page.promoted:
        print_hanging(console, "  value promotes    ", token_line(page.promoted))
        print_hanging(console, "  value suppresses  ", token_line(page.suppressed))
    else:
        print_hanging(console, "  ", UNRANKED)
    if not shown:
        console.print("  nothing in the corpus fires it")
    salient = {id(trigger): one.tokens for trigger, one in zip(shown, changes, strict=False)}
    for trigger, times in fold_equal(shown, count):
        weight = "" if trigger.weight is None else f"weight {trigger.weight:.3f} "
        head = f"{trigger.coefficient:10.3f} {weight}{times_text(times):<5}"
        print_hanging(console, head, _trigger_line(trigger, salient.get(id(trigger), ())))


def _trigger_line(trigger: Trigger, saliency: Sequence[TokenEffect]) -> Text:
    """One trigger as a text: the end of the prefix, last token, next token.

    With saliency the whole prefix, redder where a token takes more of the coefficient away.
    """
    from rich.text import Text

    from ffmem.store.memory_page import BEFORE, REST

    line, text = Text(), Snippet.of(trigger, BEFORE)
    if not saliency:
        line.append(text.before).append(text.last, style="underline")
    for place in saliency:
        line.append(place.token, style=ground(place.change))
    line.append(text.following, style="bold")
    return line if saliency else line.append(cut_end(trigger.rest, REST), style="dim")


def _token_changes(
    store: ScanStore, cell: Address, triggers: Sequence[Trigger]
) -> list[TriggerSaliency]:
    """How the coefficient changes without each token of some prefixes."""
    room_for_model()
    from ffmem.analyses.inputs.study_inputs import scanned_model
    from ffmem.analyses.removal.saliency import prefix_saliency

    model, kept = scanned_model(store), store.sentences
    places = [(kept.row(one.sentence), one.position) for one in triggers]
    return [prefix_saliency(model, store, cell, place, n) for n, place in enumerate(places, 1)]


def ground(change: float | None) -> str:
    """The style for a change in percent: red for a loss, blue for a gain, nothing near none."""
    if change is None or abs(change) < 5:
        return ""
    strength = min(abs(change), 100) / 100
    pale = round(235 - 150 * strength)
    red, green, blue = (235, pale, pale) if change < 0 else (pale, pale, 235)
    return f"black on #{red:02x}{green:02x}{blue:02x}"
