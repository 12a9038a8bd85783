"""`ffmem removal DIR`: which token of a trigger a key needs, by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import ModelOptions, loaded, model_options

if TYPE_CHECKING:
    from ffmem.analyses.removal import Removal


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--keys", default=100, show_default=True, help="Random keys a layer.")
@click.option("--top", default=50, show_default=True, help="Triggers a key.")
@click.option("--seed", default=0, show_default=True, help="Draws the keys and the tokens.")
@click.option("--model", help="The scanned model, where it is not found under its own name.")
@model_options
def removal(
    folder: Path,
    keys: int,
    top: int,
    seed: int,
    model: str | None,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Remove the first, the last or a random token of triggers and read the keys again.

    Writes analyses/removal.json and figures/removal.png into FOLDER.

    \b
    Example:
        ffmem removal out/scan --keys 10
    """
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.running import make_result, result_path
    from ffmem.studies.study import open_study
    from ffmem.studies.subject import Sizes, Subject

    store = ScanStore.open(folder)
    language_model = loaded(model or store.manifest.key.model["name"], options)
    sizes = Sizes(removal_keys=keys, removal_triggers=top)
    result = make_result(Subject(language_model, store, sizes, seed=seed), "removal", folder)
    print_table(result)
    open_study(folder).draw(["removal"])
    click.echo(f"-> {result_path(folder, 'removal')}, {folder / 'figures' / 'removal.png'}")


def print_table(result: Removal) -> None:
    """One line a layer: mean change in percent, interval over keys, sizes."""
    click.echo("change of the coefficient in % when a token is removed (95 % over keys)")
    click.echo("layer   first token          last token           random token        triggers")
    for layer in result.layers:
        cells = "  ".join(
            f"{c.estimate:6.1f} ({c.low:.1f} .. {c.high:.1f})".ljust(19)
            for c in (layer.first.mean, layer.last.mean, layer.random.mean)
        )
        click.echo(f"{layer.layer:5}  {cells}  {layer.triggers:,}")
    dead, short = (sum(getattr(each, name) for each in result.layers) for name in ("dead", "short"))
    silent = sum(layer.silent for layer in result.layers)
    click.echo(
        f"left out: {dead:,} dead keys, {short:,} triggers of one token, "
        f"{silent:,} that do not fire when read again; {result.tokens:,} tokens read"
    )
