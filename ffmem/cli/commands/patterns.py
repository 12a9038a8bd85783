"""`ffmem patterns DIR`: which patterns the triggers of keys share, by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.address_space import room_for_figures
from ffmem.cli.commands.annotate import print_held_out
from ffmem.cli.options import (
    LOCATION,
    SEED,
    SOME,
    database_option,
    open_database,
    writes_study,
)
from ffmem.cli.output import percent_text, print_columns, say

if TYPE_CHECKING:
    from ffmem.analyses.patterns.record import ControlRate, PatternResults, Summary
    from ffmem.analyses.statistics import Interval
    from ffmem.annotations.agreement import AnnotatorPatterns


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
@click.option("--again", is_flag=True, help="Replace a result of other keys or another seed.")
@database_option
@writes_study
def patterns(  # noqa: PLR0913 - one parameter per option
    folder: Path, keys: int, seed: int, annotator: str, again: bool, database: str | None
) -> None:
    r"""Find what the 25 strongest triggers of random keys have in common.

    Writes analyses/patterns.json and figures/patterns.png into FOLDER. A result of other keys or
    another seed is replaced only with --again.

    \b
    Example:
        ffmem patterns out/scan --keys 3
    """
    room_for_figures()
    from ffmem.analyses.analysis import Sizes
    from ffmem.analyses.catalogue import key_of_scan
    from ffmem.analyses.patterns.measure import patterns_by_rule
    from ffmem.analyses.result_files import refuse_other_settings
    from ffmem.annotations.agreement import patterns_by_annotator
    from ffmem.store.scan_store import ScanStore
    from ffmem.store.verification import refuse_damage

    store = ScanStore.open(folder)
    refuse_damage(store)
    study: PatternResults | AnnotatorPatterns
    if annotator == "rules":
        name = "patterns"
        made_from = key_of_scan(name, store, Sizes(pattern_keys=keys), seed)
    else:
        name = "patterns-" + re.sub(r"\W+", "-", annotator)
        scan = store.manifest.key.digest
        made_from = {"annotator": annotator, "seed": seed, "scan": scan}
    if not again:
        refuse_other_settings(folder, {name: made_from}, "--again")
    if annotator == "rules":
        study = patterns_by_rule(store, keys, seed)
    else:
        answers = open_database(folder, database).answers()
        study = patterns_by_annotator(store, answers, annotator, seed)
    print_summary(study.summary)
    _print_controls(study.controls, getattr(study, "semantic_keys", None))
    print_held_out(study.held_out)
    _save_patterns(folder, name, study, made_from)


def _save_patterns(folder: Path, name: str, study: Any, made_from: dict[str, Any]) -> None:
    """Leave the numbers and the figure in the scan's folder."""
    from ffmem.analyses.patterns.charts import patterns_chart
    from ffmem.cli.output import save_figure, save_numbers

    chart = patterns_chart(study.summary, study.controls)
    numbers = save_numbers(folder, name, study, made_from)
    say(f"-> {numbers}, {save_figure(folder, name, chart)}")


def print_summary(summary: Summary) -> None:
    """One line per layer: shares of triggers by label."""
    say(f"share of triggers in % by annotator ‘{summary.annotator}’ (95 % over keys)")
    rows = []
    for layer in (*summary.layers, summary.overall):
        shallow, both, semantic, none = layer.shares.values()
        rows.append(
            [
                f"{layer.layer or 'all':>5}",
                *(f"{100 * share.estimate:6.1f}" for share in (shallow, both, semantic)),
                percent_text(none, 100),
                f"{layer.patterns_per_key.estimate:6.1f}",
            ]
        )
    headings = ("layer", "shallow", "both", "semantic", "not covered", "patterns per key")
    print_columns(headings, rows)
    overall = summary.overall
    where = f"from layer {summary.crossover} on" if summary.crossover else "nowhere"
    say(
        f"{_keys_text(overall.keys)}, {100 * overall.with_pattern.estimate:.0f} % with a pattern; "
        f"semantic patterns lead {where}"
    )


def _keys_text(count: int) -> str:
    return f"{count:,} key" if count == 1 else f"{count:,} keys"


def _print_controls(controls: Sequence[ControlRate], semantic: Interval | None = None) -> None:
    """The false-pattern rate on control keys, and the semantic share beside the hardest ones'."""
    from ffmem.analyses.patterns.record import BAR, hardest_control

    for control in controls:
        rate = control.false_patterns
        say(
            f"control keys of {CONTROL_WORDS[control.kind]}: {100 * rate.estimate:.1f} % have a "
            f"pattern ({100 * rate.low:.1f} .. {100 * rate.high:.1f}, {_keys_text(rate.n)}), "
            f"{100 * control.covered:.1f} % of prefixes covered"
        )
    worst = hardest_control(controls)
    if worst is None:
        return
    if semantic is not None and worst.semantic is not None:
        say(
            f"semantic pattern: {100 * semantic.estimate:.1f} % of keys, "
            f"{100 * worst.semantic.estimate:.1f} % of the hardest control keys ({worst.kind})"
        )
    if worst.false_patterns.estimate > BAR:
        say(f"ABOVE {100 * BAR:.0f} % on the hardest control: do not trust Fig 2")


CONTROL_WORDS = {
    "random": "random prefixes",
    "matched": "prefixes with last tokens as common as the triggers'",
    "length": "prefixes as long as the triggers",
    "strangers": "one trigger of each of 25 other keys of the layer",
}
