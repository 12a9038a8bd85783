"""`ffmem compare DIR1 DIR2 ...`: studies side by side."""

from __future__ import annotations

from pathlib import Path

import click

from ffmem.cli.options import LOCATION


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
def compare(folders: tuple[Path, ...], out: Path) -> None:
    r"""Put two or more studies side by side: models, checkpoints, corpora, controls.

    The same claims and the same figures on the same scales, in one page that opens offline.

    \b
    Examples:
        ffmem analyse out/demo --control random-weights
        ffmem compare out/demo out/demo/control-random-weights
    """
    from ffmem.store.scan_store import ScanStore

    stores = [ScanStore.open(folder) for folder in folders]  # a wrong folder is named at once
    if len(stores) < 2:
        raise click.UsageError("a comparison needs two studies; name both folders")
    from ffmem.report.comparison import write_comparison
    from ffmem.studies.study import Study

    click.echo(f"-> {write_comparison([Study(store) for store in stores], out)}")
