"""`ffmem compare DIR1 DIR2 ...`: studies side by side, as a page or memory by memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.options import ANY, LOCATION
from ffmem.cli.output import print_hanging, print_parts, terminal, visible_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.memory_drift import Drift, Matching


@click.command()
@click.argument("folders", nargs=-1, required=True, type=LOCATION)
@click.option(
    "-o",
    "--out",
    type=LOCATION,
    default=Path("compare.html"),
    show_default=True,
    help="Page to write.",
)
@click.option(
    "--memories",
    is_flag=True,
    help="Print which memories moved, those that moved most first; no page is written.",
)
@click.option(
    "--match",
    is_flag=True,
    help="With --memories: match memories of different models by triggers of the same text.",
)
@click.option(
    "--weights",
    is_flag=True,
    help="With --memories: load both models and compare the directions of keys and values too.",
)
@click.option("--layer", type=ANY, help="With --memories: only those of one layer.")
@click.option(
    "-n", "--count", type=ANY, default=20, show_default=True, help="Memories that are printed."
)
@click.option("--json", "as_json", is_flag=True, help="With --memories: print JSON for machines.")
def compare(  # noqa: PLR0913 - one parameter an option
    folders: tuple[Path, ...],
    out: Path,
    memories: bool,
    match: bool,
    weights: bool,
    layer: int | None,
    count: int,
    as_json: bool,
) -> None:
    r"""Put two or more studies side by side: models, checkpoints, corpora, controls.

    The same claims and the same figures on the same scales, in one page that opens offline. With
    --memories two scans are compared memory by memory: between checkpoints of one model which
    triggers, values and fire rates moved; between different models which memories are triggered by
    the same places of the text (--match), beside a control with shuffled triggers.

    \b
    Examples:
        ffmem analyse out/demo --control random-weights
        ffmem compare out/demo out/demo/control-random-weights
        ffmem compare out/before out/after --memories
        ffmem compare out/gpt2 out/smollm2 --memories --match --json
    """
    from ffmem.store.scan_store import ScanStore

    stores = [ScanStore.open(folder) for folder in folders]  # a wrong folder is named at once
    if len(stores) < 2:
        raise click.UsageError("a comparison needs two studies; name both folders")
    if memories or match:
        if len(stores) > 2:
            raise click.UsageError("memories are compared between two scans; name two folders")
        if match and weights:
            raise click.UsageError("--match goes by triggers; leave --weights out")
        show_memories(compare_stores(stores, match, weights), layer, (count, as_json))
        return
    from ffmem.report.comparison import summary_of, write_comparison

    click.echo(f"-> {write_comparison(list(map(summary_of, stores)), out)}")


def compare_stores(stores: Sequence[ScanStore], match: bool, weights: bool) -> Drift | Matching:
    """Two scans cell by cell, by address or by triggers."""
    from ffmem.studies.memory_drift import is_one_shape, match_memories, memory_drift

    one, other = stores
    alike = is_one_shape(one, other)
    if match or not (weights or alike):
        return match_memories(one, other)
    if not (weights and alike):
        return memory_drift(one, other)
    from ffmem.memories.folded_weights import model_cosines
    from ffmem.studies.inputs import scanned_model

    keys, values = model_cosines(scanned_model(one), scanned_model(other), one.memories)
    return memory_drift(one, other, (keys.double().numpy(), values.double().numpy()))


def show_memories(found: Drift | Matching, layer: int | None, how: tuple[int, bool]) -> None:
    """Print the memories that moved most, or the best matches."""
    from ffmem.errors import AddressError
    from ffmem.studies.memory_drift import Drift

    store = (found.before if isinstance(found, Drift) else found.one).store
    if layer is not None and layer not in store.memories:
        known = ", ".join(map(str, store.memories))
        raise AddressError(f"the first scan has no layer {layer}; its layers are {known}")
    count, as_json = how
    rows = found.table(found.order(layer)[:count])
    if as_json:
        click.echo(json.dumps(as_data(found, rows), indent=2))
    else:
        print_memories(found, rows)


def as_data(found: Drift | Matching, rows: Sequence[Any]) -> dict[str, Any]:
    """The answer for machines."""
    from ffmem.studies.memory_drift import Drift

    table = [asdict(row) for row in rows]
    if isinstance(found, Drift):
        return {"kind": "drift", "layers": [asdict(one) for one in found.layers], "memories": table}
    numbers = {"above_control": found.share, "control_bar": found.bar}
    return {"kind": "match", **numbers, "memories": table}


def print_memories(found: Drift | Matching, rows: Sequence[Any]) -> None:
    """The answer for a person."""
    from ffmem.studies.memory_drift import Drift

    console = terminal()
    if isinstance(found, Drift):
        console.print("drift by layer (0 is as it was, 1 is all new):", style="bold")
        for one in found.layers:
            print_parts(console, f"  layer {one.layer:<4} ", distances(one))
        console.print("memories that moved most:", style="bold")
        for row in rows:
            change = f"{words(row.promotes_before)} → {words(row.promotes_after)}"
            print_parts(console, f"  {row.address:<10} ", [*distances(row), change])
        return
    print_hanging(
        console,
        "",
        f"{found.share:.1%} of the memories have a match above {found.bar:.3f}, which 95 % of the "
        "control's stay below",
    )
    for row in rows:
        both = [] if row.mutual else ["(not mutual)"]
        numbers = f"{row.match:<10} {row.score:.3f} (control {row.control:.3f})"
        tokens = f"{words(row.promotes)} | {words(row.match_promotes)}"
        print_parts(console, f"  {row.address:<10} ", [numbers, tokens, *both])


def distances(one: Any) -> list[str]:
    """The distances of a cell or of a layer's mean."""
    key = [] if one.key is None else [f"key {one.key:.3f}"]
    triggers = "  –  " if one.triggers is None else f"{one.triggers:.3f}"
    rest = [f"triggers {triggers}", f"value {one.value:.3f}", f"fires {one.fires:.3f}"]
    return [f"drift {one.drift:.3f}", *key, *rest]


def words(tokens: Sequence[str]) -> str:
    """Some tokens in a line."""
    return " ".join(visible_token(text) for text in tokens[:3])
