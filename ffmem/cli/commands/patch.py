"""`ffmem patch MODEL --set @FILE -o DIR`: an edit as a small file of weights that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import LOCATION, ModelOptions, load_model, model_options
from ffmem.errors import EditError

if TYPE_CHECKING:
    from ffmem.memories.edits import Edit
    from ffmem.memories.memory_sets import Means
    from ffmem.models.patches import ValueChange


@click.command()
@click.argument("model")
@click.option(
    "--set",
    "edits",
    multiple=True,
    required=True,
    metavar="EDIT",
    help="@FILE=0 (silence the set), @FILE*2, @FILE=mean, or one memory: L7.1034=0. Repeatable.",
)
@click.option("-o", "--out", type=LOCATION, required=True, help="Folder for the patch.")
@click.option("--scan", type=LOCATION, help="Scan whose mean coefficients =mean takes.")
@model_options
def patch(
    model: str, edits: Sequence[str], out: Path, scan: Path | None, **options: Unpack[ModelOptions]
) -> None:
    r"""Write the edits of MODEL's memories as a change of its weights.

    DIR gets patch.safetensors, the old and the new values of the memories, and patch.json, which
    names the weights it is for. `ffmem.load(MODEL, patch=DIR)` applies it; `ffmem.remove_patch`
    restores the original to the bit. Holding a memory at a number other than 0 needs a layer with
    a bias.

    \b
    Example:
        ffmem patch tiny:opt --set L2.7=0 -o out/patch
    """
    from ffmem.memories.memory_sets import expand_edits
    from ffmem.models.patches import write_patch

    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise click.UsageError(f"{out} is there already; choose another folder")
    language_model = load_model(model, options)
    means = None if scan is None else scan_means(scan)
    parsed = expand_edits(edits, language_model, means)
    folder = write_patch(language_model, value_changes(parsed), [str(e) for e in parsed], out)
    click.echo(
        f"-> {folder}: {len(parsed):,} memories; load it with ffmem.load(..., patch={str(out)!r})"
    )


def value_changes(edits: Sequence[Edit]) -> dict[int, ValueChange]:
    """Edits as changes of values, by layer."""
    from ffmem.models.patches import ValueChange

    found: dict[int, ValueChange] = {}
    for edit in edits:
        if edit.address.sign:
            raise EditError(
                f"{edit.address} is one sign of a memory, which no change of weights can edit; "
                f"write {str(edit.address)[:-1]}"
            )
        change = found.setdefault(edit.address.layer, ValueChange({}, {}))
        index = edit.address.index
        if index in change.factors:
            raise EditError(f"{edit.address} is edited twice; write each memory once")
        change.factors[index] = edit.amount if edit.action == "scale" else 0.0
        if edit.action == "set":
            change.held[index] = edit.amount
    return found


def scan_means(folder: Path) -> Means:
    """Mean coefficients as a scan counted them."""
    from ffmem.store.scan_store import ScanStore

    return ScanStore.open(folder).mean_coefficients
