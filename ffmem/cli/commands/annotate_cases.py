"""`ffmem annotate cases DIR OUT`: what the last layer does, for people to judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ffmem.cli.options import ANY, LOCATION, database_option, open_database

if TYPE_CHECKING:
    from ffmem.analyses.statistics import Interval
    from ffmem.annotations.agreement import CaseAgreement
    from ffmem.annotations.cases import CaseAnswer, CaseSheet, Judgement
    from ffmem.annotations.database import Annotations


@click.command()
@click.argument("folder", type=LOCATION)
@click.argument("out", type=LOCATION)
@click.option(
    "--controls", type=ANY, default=50, show_default=True, help="Shuffled pairs mixed in, at most."
)
@database_option
def cases(folder: Path, out: Path, controls: int, database: str | None) -> None:
    r"""Write sheets of cases where the last layer changes the prediction into the folder OUT.

    The cases are those of `ffmem analyse FOLDER --only last-layer`; a person says of each whether
    the old and the new token are related or distant. Controls, where the old token is another
    prefix's, are mixed in and do not show. The rule's own judgements are saved as `rules`. A sheet
    that is already in OUT is left as it is.

    \b
    Example:
        ffmem annotate cases out/scan out/cases
    """
    from ffmem.annotations.cases import RULES, draw_case_sheets
    from ffmem.annotations.markdown import case_sheet_text
    from ffmem.cli.output import save_text
    from ffmem.errors import StoreError
    from ffmem.studies.study import open_study

    annotations, study = open_database(folder, database), open_study(folder)
    result = study.result("last-layer")
    drawn = draw_case_sheets(result, study.store.manifest.key.digest, controls)
    if not drawn:
        raise StoreError(
            f"in the sample of {folder} the last layer never changes the token to a third one, so "
            "there is nothing to judge; analyse a larger --sample"
        )
    annotations.add_case_sheets([sheet for sheet, _ in drawn])
    for sheet, judged in drawn:
        annotations.judge(sheet, RULES, judged)
    new = [sheet for sheet, _ in drawn if not (out / f"cases-{sheet.name}.md").exists()]
    for sheet in new:
        save_text(out / f"cases-{sheet.name}.md", case_sheet_text(sheet))
    click.echo(
        f"{len(new)} sheets of {sum(len(sheet.cases) for sheet in new)} cases -> {out}; judge "
        f"them, then: ffmem annotate import {folder} {out} --annotator NAME"
    )


def parse_case_files(
    annotations: Annotations, texts: Mapping[str, str], skip_empty: bool
) -> list[tuple[CaseSheet, list[Judgement]]]:
    """The sheets of cases among files, by path, with what is said on them."""
    from ffmem.annotations.markdown import is_blank_case_sheet, parse_case_sheet

    known = {sheet.name: sheet for sheet in annotations.case_sheets()}
    return [
        parse_case_sheet(text, path, known)
        for path, text in texts.items()
        if not (skip_empty and is_blank_case_sheet(text))
    ]


def case_answers_of(folder: Path, annotations: Annotations) -> list[CaseAnswer]:
    """What was judged of this scan's cases."""
    from ffmem.store.scan_store import ScanStore

    return annotations.case_answers(ScanStore.open(folder).manifest.key.digest)


def print_cases(result: CaseAgreement, count: int) -> None:
    """Shares, agreement, and who disagrees where."""
    click.echo("changes of the last layer, judged related (the paper's judges: 34 of 100)")
    for share in result.shares:
        click.echo(
            f"  {share.annotator}: {_share(share.related)} cases, {_share(share.controls)} controls"
        )
    for pair in result.pairs:
        click.echo(
            f"{pair.one} and {pair.other}: kappa {pair.kappa:.2f}, the same on "
            f"{100 * pair.same:.0f} % of {pair.cases} cases"
        )
    if not result.pairs:
        click.echo("no case has been judged by two; give the same sheets to a second person")
    for case, said in result.disagreements[:count]:
        labels = ", ".join(f"{who}: {judgement}" for who, judgement in said.items())
        click.echo(f"  {case.old.strip()!r} -> {case.new.strip()!r}: {labels}")
    if len(result.disagreements) > count:
        click.echo(f"  ... and {len(result.disagreements) - count} more")


def _share(found: Interval) -> str:
    if not found.n:
        return "none of 0"
    return (
        f"{100 * found.estimate:.0f} % ({100 * found.low:.0f} .. {100 * found.high:.0f}) "
        f"of {found.n}"
    )
