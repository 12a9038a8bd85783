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
    from rich.console import Console

    from ffmem.cli.output import print_verdicts
    from ffmem.report.build import build
    from ffmem.report.report_writer import write_report
    from ffmem.studies.study import open_study

    study = open_study(folder)
    study.draw()
    page = write_report(study)
    print_verdicts(Console(), build(study).verdicts)
    click.echo(f"\nreport: {page}")
