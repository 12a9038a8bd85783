"""`ffmem annotate score DIR`: what every annotator's patterns are worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import (
    LOCATION,
    SEED,
    EmbeddingOptions,
    database_option,
    embedder,
    embedding_options,
    open_database,
)

if TYPE_CHECKING:
    from ffmem.patterns.held_out import HeldOutScore


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of the random prefixes."
)
@database_option
@embedding_options
def score(
    folder: Path, seed: int, database: str | None, **options: Unpack[EmbeddingOptions]
) -> None:
    r"""Say how well each annotator's patterns predict the triggers that nobody was shown.

    Patterns are read from the prefixes they tick, the same way for people, language models and
    rules. Writes analyses/annotators.json into FOLDER.

    \b
    Example:
        ffmem annotate score out/scan
    """
    from ffmem.annotations.scoring import score_annotators
    from ffmem.cli.output import save_numbers
    from ffmem.errors import StoreError
    from ffmem.store.scan_store import ScanStore

    sayings, store = open_database(folder, database).answers(), ScanStore.open(folder)
    if not sayings:
        raise StoreError(
            f"nobody has answered a sheet of {folder} yet; begin with `ffmem annotate sheets`"
        )
    result = score_annotators(store, sayings, embedder(store, options), seed)
    for who, rows in result.annotators.items():
        click.echo(who)
        print_held_out(rows)
    click.echo(f"-> {save_numbers(folder, 'annotators', result)}")


def print_held_out(rows: Sequence[HeldOutScore]) -> None:
    """How well patterns tell a key's other triggers from prefixes that are none."""
    click.echo("held out (ranks 26-50):     patterns  precision  recall  AUC")
    for row in rows:
        click.echo(
            f"  {row.on:<9}{row.kind:<9} v. {row.against:<7}{row.patterns:7}  "
            f"{row.precision:9.2f}  {row.recall:6.2f}  "
            f"{row.auc.estimate:.2f} ({row.auc.low:.2f} .. {row.auc.high:.2f})"
        )
    if not rows:
        click.echo("  no pattern on a key with triggers beyond those shown")
