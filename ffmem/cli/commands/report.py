"""`ffmem report DIR`: figures and report from the results that are there."""

from __future__ import annotations

from pathlib import Path

import click

from ffmem.cli.options import LOCATION, names_damage


@click.command()
@click.argument("folder", type=LOCATION)
@names_damage
def report(folder: Path) -> None:
    r"""Draw the figures and write the report of the study in FOLDER from its results.

    Runs no model: for results made on another machine, or by `ffmem analyse`.

    \b
    Example:
        ffmem report out/scan
    """
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)  # a wrong folder is named before anything slow is imported
    from ffmem.cli.terminal import print_verdicts, terminal
    from ffmem.report.build import build
    from ffmem.report.report_writer import write_report
    from ffmem.studies.study import Study

    study = Study(store)
    study.draw()
    page = write_report(study)
    print_verdicts(terminal(), build(study).verdicts)
    click.echo(f"\nreport: {page}\nbrowse it with: ffmem explore {folder}")
