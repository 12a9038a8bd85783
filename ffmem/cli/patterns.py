"""`ffmem patterns DIR`: which patterns the triggers of keys share, by layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.database import database_option, opened
from ffmem.cli.options import ModelOptions, loaded, model_options

if TYPE_CHECKING:
    from ffmem.analyses.meanings import Embedding
    from ffmem.analyses.pattern_study import ControlRate, PatternStudy
    from ffmem.analyses.patterns import Summary
    from ffmem.analyses.rules import Background


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--keys", default=10, show_default=True, help="Random keys a layer.")
@click.option("--seed", default=0, show_default=True, help="Draws the keys.")
@click.option(
    "--annotator",
    default="rules",
    show_default=True,
    help="rules, or whoever's sheets were imported with `ffmem annotate import`.",
)
@database_option
@click.option(
    "--embedding",
    help="A sentence-transformers model (name or folder) that compares meanings, instead of the "
    "scanned model's own states.",
)
@click.option("--model", help="The scanned model, where it is not found under its own name.")
@model_options
def patterns(  # noqa: PLR0913 - one parameter an option
    folder: Path,
    keys: int,
    seed: int,
    annotator: str,
    database: str | None,
    embedding: str | None,
    model: str | None,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Find what the 25 strongest triggers of random keys have in common.

    Writes analyses/patterns.json and figures/patterns.png into FOLDER.

    \b
    Example:
        ffmem patterns out/scan --keys 3
    """
    from ffmem.analyses.pattern_study import pattern_study
    from ffmem.analyses.word_states import WordStates, sentence_embedding
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.stages import made_from
    from ffmem.studies.subject import Sizes, Subject

    if annotator != "rules":
        show_answers(folder, annotator, database)
        return
    store = ScanStore.open(folder)
    made: dict[str, Any] = {"embedding": embedding}
    embed: Callable[[Background], Embedding]
    if embedding:
        meaning = sentence_embedding(embedding)
        embed = lambda _: meaning  # noqa: E731
    else:
        language_model = loaded(model or store.manifest.key.model["name"], options)
        embed = lambda found: WordStates(language_model, found)  # noqa: E731
        subject = Subject(language_model, store, Sizes(pattern_keys=keys), seed=seed)
        made = made_from("patterns", subject)
    study = pattern_study(store, embed, keys, seed)
    print_summary(study.summary)
    print_controls(study.controls)
    print_held_out(study)
    save(folder, "patterns", study, made)


def show_answers(folder: Path, annotator: str, database: str | None) -> None:
    """Fig 2 from what a person said, with the false patterns on the control keys among it."""
    from ffmem.annotations.study import answered_study

    study = answered_study(opened(folder, database).sayings(), annotator)
    print_summary(study.summary)
    print_controls(study.controls)
    name = "patterns-" + re.sub(r"\W+", "-", annotator)
    save(folder, name, study)


def save(folder: Path, name: str, study: Any, made: dict[str, Any] | None = None) -> None:
    """Leave the numbers and the figure in the scan's folder."""
    from ffmem.cli.results import save_figure, save_numbers
    from ffmem.figures.patterns import patterns_chart

    numbers = save_numbers(folder, name, study, made)
    figure = save_figure(folder, name, patterns_chart(study.summary, study.controls))
    click.echo(f"-> {numbers}, {figure}")


def print_summary(summary: Summary) -> None:
    """One line a layer: shares of triggers by label."""
    click.echo(f"share of triggers in % by annotator ‘{summary.annotator}’ (95 % over keys)")
    click.echo("layer   shallow   both   semantic   not covered        patterns a key")
    for layer in (*summary.layers, summary.overall):
        shares = [layer.shares[name] for name in layer.shares]
        none = shares[3]
        click.echo(
            f"{layer.layer or 'all':>5}   {100 * shares[0].estimate:7.1f} "
            f"{100 * shares[1].estimate:6.1f}   {100 * shares[2].estimate:8.1f}   "
            f"{100 * none.estimate:5.1f} ({100 * none.low:.1f} .. {100 * none.high:.1f})".ljust(58)
            + f"{layer.patterns_per_key.estimate:.1f}"
        )
    overall = summary.overall
    click.echo(
        f"{overall.keys} keys, {100 * overall.with_pattern.estimate:.0f} % with a pattern; "
        f"semantic leads from layer {summary.crossover or '(nowhere)'} on"
    )


def print_controls(controls: Sequence[ControlRate]) -> None:
    """The false-pattern rate on control keys."""
    for control in controls:
        rate = control.false_patterns
        click.echo(
            f"control keys of {control.kind} prefixes: {100 * rate.estimate:.1f} % have a pattern "
            f"({100 * rate.low:.1f} .. {100 * rate.high:.1f}, {rate.n} keys), "
            f"{100 * control.covered:.1f} % of prefixes covered"
            + ("" if rate.estimate <= 0.1 else "  ABOVE 10 %: do not trust Fig 2")
        )


def print_held_out(study: PatternStudy) -> None:
    """How well patterns tell a key's other triggers from prefixes that are none."""
    click.echo("held out (ranks 26-50):     patterns  precision  recall  AUC")
    for row in study.held_out:
        click.echo(
            f"  {row.on:<9}{row.kind:<9} v. {row.against:<7}{row.patterns:7}  "
            f"{row.precision:9.2f}  {row.recall:6.2f}  "
            f"{row.auc.estimate:.2f} ({row.auc.low:.2f} .. {row.auc.high:.2f})"
        )
