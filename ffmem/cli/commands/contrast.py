"""`ffmem contrast DIR_A DIR_B ...`: memories that fire on one corpus and not on others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.commands.effect import change_parts, first_rows
from ffmem.cli.options import LOCATION, SEED, SHARE_TYPE, SOME
from ffmem.cli.output import print_hanging, print_parts, say, terminal
from ffmem.errors import StoreError

if TYPE_CHECKING:
    from ffmem.address import Address
    from ffmem.analyses.contrast import Contrast, ContrastTable
    from ffmem.analyses.effect import TextEffect
    from ffmem.store.scan_store import ScanStore


@click.command()
@click.argument("folders", nargs=-1, required=True, type=LOCATION)
@click.option(
    "--level", type=SHARE_TYPE, default=0.05, show_default=True, help="False discovery rate."
)
@click.option(
    "-n", "--count", type=SOME, default=10, show_default=True, help="Cells shown per corpus."
)
@click.option("--top", type=SOME, default=50, show_default=True, help="Cells per set.")
@click.option("--save", type=LOCATION, help="Write the top set of the first corpus to a file.")
@click.option("-o", "--out", type=LOCATION, help="Folder for the table, numbers and figure.")
@click.option(
    "--check",
    is_flag=True,
    help="Silence each corpus' top set and measure the loss on every corpus (runs the model).",
)
@click.option(
    "--sentences",
    type=SOME,
    default=50,
    show_default=True,
    help="With --check: sentences per corpus.",
)
@click.option(
    "--random", type=SOME, default=2, show_default=True, help="With --check: random sets."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random sets.")
@click.option("--model", help="The scanned model, if it cannot be found under its own name.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def contrast(  # noqa: PLR0913 - one parameter per option
    folders: tuple[Path, ...],
    level: float,
    count: int,
    top: int,
    save: Path | None,
    out: Path | None,
    check: bool,
    sentences: int,
    random: int,
    seed: int,
    model: str | None,
    device: str,
    as_json: bool,
) -> None:
    r"""Find the memories that fire on the corpus of one scan and not on those of others.

    FOLDERS are scans of one model with the same options over different corpora: languages, code and
    prose, safe and unsafe text. Prints log odds of firing with intervals, entropy over corpora and
    mean coefficients; halves of one corpus are the control. No text is read without --check.

    \b
    Example:
        ffmem contrast out/french out/english --save french.txt
    """
    from ffmem.analyses.contrast import contrast as compare
    from ffmem.store.result_files import to_plain
    from ffmem.store.scan_store import ScanStore

    stores = [ScanStore.open(folder) for folder in folders]
    result, table, counts = compare(stores, corpus_names(folders), level)
    sets = top_sets(stores[0], table, result, top)
    if save is not None:
        save_set(save, sets[result.corpora[0]], result)
    effects = []
    if check:
        effects = measure(stores, sets, (model, device), (sentences, random, seed))
    if as_json:
        data = {"contrast": to_plain(result), "check": effects_data(effects)}
        click.echo(json.dumps(data, indent=2))
    else:
        print_contrast(result, count)
        print_check(effects)
    if out is not None:
        write(out, stores[0], counts, table, result)


def corpus_names(folders: Sequence[Path]) -> list[str]:
    """A short name for each scan: its folder's, or the whole path where two are alike."""
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def top_sets(
    store: ScanStore, table: ContrastTable, result: Contrast, top: int
) -> dict[str, list[Address]]:
    """The most specific cells of every corpus."""
    return {
        name: store.cells.addresses(table.order(corpus, result.level)[:top])
        for corpus, name in enumerate(result.corpora)
    }


def save_set(path: Path, addresses: Sequence[Address], result: Contrast) -> None:
    """Write the set of the first corpus."""
    from ffmem.cli.output import save_text
    from ffmem.memories.edits import set_text

    first, *others = result.corpora
    if not addresses:
        raise StoreError(
            f"no memory is specific to {first}, so {path} was not written; scan more text"
        )
    about = f"{len(addresses)} memories that fire more often on {first} than on {', '.join(others)}"
    save_text(path, set_text(addresses, about))
    say(f"-> {path}", err=True)


SetEffect = tuple[str, str, "TextEffect"]  # whose set, on which text, what it did


def measure(
    stores: Sequence[ScanStore],
    sets: dict[str, list[Address]],
    how: tuple[str | None, str],
    sizes: tuple[int, int, int],
) -> list[SetEffect]:
    """Silence every set, and random sets like it, on the first sentences of every corpus."""
    import torch

    from ffmem.analyses.effect import coefficient_rates, random_sets, text_effect
    from ffmem.memories.edits import Edit
    from ffmem.studies.inputs import scanned_model

    sentences, random, seed = sizes
    model = scanned_model(stores[0], how[1], how[0])
    texts = {
        name: first_rows(
            model,
            store.manifest.key.source(),
            store.manifest.key.sentence_settings(),
            sentences,
        )
        for name, store in zip(sets, stores, strict=True)
    }
    rates = coefficient_rates(model, [row for rows in texts.values() for row in rows])
    generator = torch.Generator().manual_seed(seed)
    found = []
    for owner, addresses in sets.items():
        edits = [Edit(address, "set", 0.0) for address in addresses]
        if not edits:
            continue
        controls = random_sets(model, edits, rates, random, generator)
        for name, rows in texts.items():
            found.append((owner, name, text_effect(model, rows, edits, controls, generator)))
    return found


def effects_data(effects: Sequence[SetEffect]) -> list[dict[str, Any]]:
    """The effect of silencing, as plain data."""
    from ffmem.store.result_files import to_plain

    return [{"set": owner, "text": name, **to_plain(found)} for owner, name, found in effects]


def print_contrast(result: Contrast, count: int) -> None:
    """Counts, control, and the most specific cells of each corpus."""
    console, names = terminal(), result.corpora
    halves = ", ".join(f"{n} {c:,}" for n, c in zip(names, result.halves, strict=True))
    print_hanging(
        console,
        "",
        f"{result.cells:,} cells, false discoveries held to {100 * result.level:.3g} %; in halves "
        f"of one corpus: {halves}",
    )
    print_hanging(console, "", f"fires and mean are on {', then '.join(names)}")
    for name, specific in zip(names, result.specific, strict=True):
        print_hanging(console, "", f"specific to {name}: {specific:,}", "bold")
        for cell in result.top[name][:count]:
            rates = " ".join(f"{100 * rate:6.2f} %" for rate in cell.rates)
            means = " ".join(f"{mean:6.2f}" for mean in cell.means)
            odds = f"log odds {cell.log_odds:5.2f} ({cell.low:.2f} .. {cell.high:.2f})"
            parts = [f"fires {rates}", f"mean {means}", odds, f"entropy {cell.entropy:.2f}"]
            print_parts(console, f"  {cell.address!s:<12} ", parts)
    layers = [f"L{layer.layer}: {'/'.join(map(str, layer.specific))}" for layer in result.layers]
    print_parts(console, f"by layer ({'/'.join(names)}): ", layers)


def print_check(effects: Sequence[SetEffect]) -> None:
    """The effect of silencing each set on each corpus, beside random sets."""
    console = terminal()
    for owner, name, found in effects:
        print_hanging(
            console,
            "",
            f"{found.memories} cells of {owner} silenced, on {name} (loss {found.loss:.3f})",
            "bold",
        )
        print_parts(console, "  the set   ", change_parts(found.edit))
        for number, change in enumerate(found.random, 1):
            print_parts(console, f"  random {number:<2} ", change_parts(change))


def write(out: Path, store: ScanStore, counts: Any, table: ContrastTable, result: Contrast) -> None:
    """Leave table, numbers and figure in a folder."""
    from ffmem.analyses.contrast import contrast_columns
    from ffmem.cli.output import save_figure, save_numbers
    from ffmem.figures.membership import contrast_chart
    from ffmem.store.weight_columns import write_columns

    numbers = save_numbers(out, "contrast", result)
    columns = contrast_columns(store, counts, table, result.level)
    for ending in (".parquet", ".csv"):
        write_columns(numbers.with_suffix(ending), columns)
    figure = save_figure(out, "contrast", contrast_chart(result))
    say(f"-> {numbers.parent}, {figure}", err=True)
