"""`ffmem patterns DIR`: which patterns the triggers of keys share, by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.commands.annotate import print_held_out
from ffmem.cli.options import (
    LOCATION,
    SEED,
    SOME,
    EmbeddingOptions,
    database_option,
    embedder,
    embedding_options,
    model_for,
    names_damage,
    open_database,
)

if TYPE_CHECKING:
    from ffmem.analyses.statistics import Interval
    from ffmem.annotations.scoring import AnnotatorPatterns
    from ffmem.patterns.analysis import ControlRate, PatternResults
    from ffmem.patterns.record import Summary
    from ffmem.store.scan_store import ScanStore


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--keys", type=SOME, default=10, show_default=True, help="Random keys per layer.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the drawn keys.")
@click.option(
    "--annotator",
    default="rules",
    show_default=True,
    help="Who names the patterns: rules, a person's name, or llm:NAME.",
)
@database_option
@embedding_options
@names_damage
def patterns(  # noqa: PLR0913 - one parameter an option
    folder: Path,
    keys: int,
    seed: int,
    annotator: str,
    database: str | None,
    **options: Unpack[EmbeddingOptions],
) -> None:
    r"""Find what the 25 strongest triggers of random keys have in common.

    Writes analyses/patterns.json and figures/patterns.png into FOLDER, or into
    FOLDER/other-settings/ where the study has that result for other keys, seed or embedding.

    \b
    Example:
        ffmem patterns out/scan --keys 3
    """
    from ffmem.annotations.scoring import patterns_by_annotator
    from ffmem.store.range_checks import refuse_damage
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)
    refuse_damage(store)
    study: PatternResults | AnnotatorPatterns
    if annotator == "rules":
        name = "patterns"
        study, made = by_rule(store, keys, seed, options)
    else:
        name = "patterns-" + re.sub(r"\W+", "-", annotator)
        sayings = open_database(folder, database).answers()
        study = patterns_by_annotator(
            store, sayings, annotator, lambda: embedder(store, options), seed
        )
        made = {"annotator": annotator, "embedding": options["embedding"], "seed": seed}
        made["scan"] = store.manifest.key.digest
    print_summary(study.summary)
    print_controls(study.controls, getattr(study, "semantic_keys", None))
    print_held_out(study.held_out)
    save(folder, name, study, made)


def by_rule(
    store: ScanStore, keys: int, seed: int, options: EmbeddingOptions
) -> tuple[PatternResults, dict[str, Any]]:
    """The study by the rule annotator, and all that decides it."""
    from ffmem.patterns.analysis import patterns_by_rule
    from ffmem.studies.inputs import Sizes, StudyInputs
    from ffmem.studies.registry import ANALYSES, result_key

    if (name := options["embedding"]) != "text":
        made = {"embedding": name, "pattern_keys": keys, "seed": seed}
        made["scan"] = store.manifest.key.digest
        return patterns_by_rule(store, embedder(store, options), keys, seed, name), made
    model = model_for(store, options)
    subject = StudyInputs(model, store, Sizes(pattern_keys=keys), seed=seed)
    return ANALYSES["patterns"].run(subject), result_key("patterns", subject)


def save(folder: Path, name: str, study: Any, made: dict[str, Any]) -> None:
    """Leave the numbers and the figure in the scan's folder."""
    from ffmem.cli.output import save_result
    from ffmem.figures.patterns import patterns_chart

    chart = patterns_chart(study.summary, study.controls)
    click.echo(f"-> {save_result(folder, name, study, made, chart)}")


def print_summary(summary: Summary) -> None:
    """One line per layer: shares of triggers by label."""
    click.echo(f"share of triggers in % by annotator ‘{summary.annotator}’ (95 % over keys)")
    click.echo("layer   shallow   both   semantic   not covered        patterns per key")
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


def print_controls(controls: Sequence[ControlRate], semantic: Interval | None = None) -> None:
    """The false-pattern rate on control keys, and the semantic share beside the hardest ones'."""
    from ffmem.patterns.analysis import BAR, hardest_control

    for control in controls:
        rate = control.false_patterns
        click.echo(
            f"control keys of {CONTROL_WORDS[control.kind]}: {100 * rate.estimate:.1f} % have a "
            f"pattern ({100 * rate.low:.1f} .. {100 * rate.high:.1f}, {rate.n} keys), "
            f"{100 * control.covered:.1f} % of prefixes covered"
        )
    worst = hardest_control(controls)
    if worst is None:
        return
    if semantic is not None and worst.semantic is not None:
        click.echo(
            f"semantic pattern: {100 * semantic.estimate:.1f} % of keys, "
            f"{100 * worst.semantic.estimate:.1f} % of the hardest control keys ({worst.kind})"
        )
    if worst.false_patterns.estimate > BAR:
        click.echo(f"ABOVE {100 * BAR:.0f} % on the hardest control: do not trust Fig 2")


CONTROL_WORDS = {
    "random": "random prefixes",
    "matched": "prefixes with last tokens as common as the triggers'",
    "length": "prefixes as long as the triggers",
    "strangers": "one trigger of each of 25 other keys of the layer",
}
