"""`ffmem analyse DIR`: answer the paper's questions about a scan, with figures."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--valid", help="Validation text, named as a corpus; the demo model has its own.")
@click.option("--only", help="Analyses to run, e.g. values,composition; all by default.")
@click.option("--sample", default=4000, show_default=True, help="Validation prefixes drawn.")
@click.option("--seed", default=0, show_default=True, help="Draws prefixes, memories, shuffles.")
@click.option(
    "--control",
    type=click.Choice(["random-weights"]),
    help="Run the same on an untrained model of the same shape instead, beside the results.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
def analyse(  # noqa: PLR0913 - one parameter an option
    folder: Path,
    valid: str | None,
    only: str | None,
    sample: int,
    seed: int,
    control: str | None,
    device: str,
) -> None:
    r"""Answer the paper's questions about the scan in FOLDER.

    Writes FOLDER/analyses/NAME.json and FOLDER/figures/: each figure as a page, SVG, PNG and its
    numbers as CSV and JSON. Analyses: values, composition, refinement, last-layer, lenses, causal.

    \b
    Example:
        ffmem analyse out/scan --only values,refinement --sample 1000
    """
    from ffmem import demo, stages
    from ffmem.corpus.sources import Source
    from ffmem.store.scan_store import ScanStore

    plan = stages.AnalysisPlan(
        valid=None if valid is None else Source(demo.corpus(valid)),
        only=stages.chosen(only),
        sample=sample,
        seed=seed,
    )
    store = ScanStore.open(folder)
    model = stages.model_of(store, device)
    run = stages.analyse if control is None else stages.analyse_untrained
    run(model, store, plan, folder, lambda name, took: click.echo(f"{name:<12} {took:7.1f} s"))
    where = folder if control is None else folder / stages.CONTROL
    click.echo(f"numbers in {where / 'analyses'}, figures in {where / 'figures'}")
