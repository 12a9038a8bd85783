"""`ffmem patterns DIR`: which patterns the triggers of keys share, by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import ModelOptions, loaded, model_options

if TYPE_CHECKING:
    from ffmem.analyses.pattern_study import PatternStudy
    from ffmem.analyses.patterns import Summary


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--keys", default=10, show_default=True, help="Random keys a layer.")
@click.option("--seed", default=0, show_default=True, help="Draws the keys.")
@click.option("--model", help="The scanned model, where it is not found under its own name.")
@model_options
def patterns(
    folder: Path, keys: int, seed: int, model: str | None, **options: Unpack[ModelOptions]
) -> None:
    r"""Find what the 25 strongest triggers of random keys have in common.

    Writes analyses/patterns.json and figures/patterns.png into FOLDER.

    \b
    Example:
        ffmem patterns out/scan --keys 3
    """
    from ffmem.analyses.pattern_study import pattern_study
    from ffmem.analyses.word_states import WordStates
    from ffmem.cli.results import save_figure, save_numbers
    from ffmem.figures.patterns import patterns_chart
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)
    language_model = loaded(model or store.manifest.key.model["name"], options)
    study = pattern_study(
        store, lambda background: WordStates(language_model, background), keys, seed
    )
    print_summary(study.summary)
    print_worth(study)
    numbers = save_numbers(folder, "patterns", study)
    chart = patterns_chart(study.summary, study.controls)
    click.echo(f"-> {numbers}, {save_figure(folder, 'patterns', chart)}")


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


def print_worth(study: PatternStudy) -> None:
    """The false-pattern rate and the held-out score."""
    for control in study.controls:
        rate = control.false_patterns
        click.echo(
            f"control keys of {control.kind} prefixes: {100 * rate.estimate:.1f} % have a pattern "
            f"({100 * rate.low:.1f} .. {100 * rate.high:.1f}, {rate.n} keys), "
            f"{100 * control.covered:.1f} % of prefixes covered"
            + ("" if rate.estimate <= 0.1 else "  ABOVE 10 %: do not trust Fig 2")
        )
    click.echo("held out (ranks 26-50):     patterns  precision  recall  AUC")
    for row in study.held_out:
        click.echo(
            f"  {row.on:<9}{row.kind:<9} v. {row.against:<7}{row.patterns:7}  "
            f"{row.precision:9.2f}  {row.recall:6.2f}  "
            f"{row.auc.estimate:.2f} ({row.auc.low:.2f} .. {row.auc.high:.2f})"
        )
