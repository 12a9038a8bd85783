"""`ffmem analyse DIR`: answer the paper's questions about a scan, with figures."""

from __future__ import annotations

from pathlib import Path

import click

from ffmem.cli.options import LOCATION, SEED, SOME, names_damage, while_loading
from ffmem.cli.progress import exit_code, print_event


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--valid", help="Validation text, named as a corpus; the demo model has its own.")
@click.option("--only", help="Analyses to run, e.g. values,composition; all by default.")
@click.option("--again", help="Analyses to run even if their result exists.")
@click.option(
    "--size",
    type=click.Choice(["paper", "small"]),
    default="paper",
    show_default=True,
    help="How much is measured: as in the paper, or what two CPU cores can do in minutes.",
)
@click.option("--sample", type=SOME, help="Validation prefixes drawn, instead of the size's.")
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Seed of drawn prefixes, memories and shuffles.",
)
@click.option(
    "--control",
    type=click.Choice(["random-weights"]),
    help="Run on an untrained model of the same shape instead; results go beside the study's.",
)
@click.option("--figures/--no-figures", default=True, help="Draw the figures, or numbers only.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
@names_damage
def analyse(  # noqa: PLR0913 - one parameter an option
    folder: Path,
    valid: str | None,
    only: str | None,
    again: str | None,
    size: str,
    sample: int | None,
    seed: int,
    control: str | None,
    figures: bool,
    device: str,
) -> None:
    r"""Answer the paper's questions about the scan in FOLDER.

    Writes FOLDER/analyses/NAME.json and FOLDER/figures/: each figure as a page, SVG, PNG and its
    numbers as CSV and JSON. A result that is there for the same settings is kept. One that is there
    for other settings stays the study's own, and the new one goes to FOLDER/other-settings/; with
    --again the new one becomes the study's own and the earlier one goes there. Without --valid the
    prefixes of composition, refinement and causal come from the scanned text itself.

    \b
    Example:
        ffmem analyse out/scan --only values,refinement --sample 1000
    """
    from dataclasses import replace

    from ffmem import demo
    from ffmem.corpus.sources import Source
    from ffmem.store.folder import StudyFolder
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.inputs import SIZES, StudyInputs, scanned_model, untrained_inputs
    from ffmem.studies.registry import parse_names
    from ffmem.studies.runner import run_analyses

    names, once_more = parse_names(only), parse_names(again) if again else ()
    store = ScanStore.open(folder)
    sizes = SIZES[size] if sample is None else replace(SIZES[size], sample=sample)
    text = None if valid is None else Source(demo.corpus(valid))
    with while_loading(store.manifest.key.model["name"]):
        model = scanned_model(store, device)
    subject = StudyInputs(model, store, sizes, text, seed)
    if control is not None:
        folder = StudyFolder(folder).control.root
        subject = untrained_inputs(subject, folder)
    events = run_analyses(subject, names, folder, once_more, print_event, take_over=once_more)
    if figures:
        from ffmem.studies.study import draw_other_settings, open_study

        open_study(folder).draw([event.analysis for event in events if event.beside is None])
        for event in events:
            if event.beside is not None and event.state != "failed":
                draw_other_settings(event.beside, event.analysis)
        files = StudyFolder(folder)
        click.echo(f"numbers in {files.analyses}, figures in {files.figures}")
    raise SystemExit(exit_code(events))
