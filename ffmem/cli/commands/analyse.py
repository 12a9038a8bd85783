"""The paper's questions about a scan: `ffmem analyse`, and `ffmem patterns` for one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.address_space import FIGURES, check_address_space, room_for_figures
from ffmem.cli.judgements import print_held_out
from ffmem.cli.options import (
    claims_option,
    database_option,
    device_option,
    figures_option,
    while_loading,
)
from ffmem.cli.output import percent_text, print_columns, say
from ffmem.cli.parameters import LOCATION, SEED, SOME
from ffmem.cli.progress import exit_code, print_event
from ffmem.cli.scan_plan import validation_text
from ffmem.cli.study_access import open_database, writes_study
from ffmem.store.folder import SCANNED_CONTROLS
from ffmem.store.people.annotators import RULES

if TYPE_CHECKING:
    from ffmem.analyses.patterns.record import ControlRate, PatternResults, Summary
    from ffmem.analyses.statistics import Interval
    from ffmem.annotations.agreement import AnnotatorPatterns


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--valid", help="Validation text, named like a CORPUS; the demo model has its own.")
@click.option("--only", help="Analyses to run, e.g. values,composition; all by default.")
@click.option("--again", help="Analyses to run even if their result exists.")
@click.option(
    "--size",
    type=click.Choice(["paper", "small"]),
    default="paper",
    show_default=True,
    help="How much to measure: as in the paper, or what two CPU cores can do in minutes.",
)
@click.option(
    "--sample", type=SOME, help="Number of validation sentences, instead of that of --size."
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Seed of drawn prefixes, memories and shuffles.",
)
@click.option(
    "--control",
    type=click.Choice(SCANNED_CONTROLS),
    help="Run on the model with permuted weights, or on an untrained one of the same shape, "
    "instead; its results are kept separately.",
)
@figures_option
@device_option
@claims_option
@writes_study
def analyse(  # noqa: PLR0913 - one parameter per option
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
    claims: bool,
) -> None:
    r"""Answer the paper's questions about the scan in FOLDER.

    Prints the claims that the study's own results decide, with their numbers. Writes
    FOLDER/analyses/NAME.json and FOLDER/figures/. A result that exists for the same settings is
    reused; one of other settings is replaced only with --again. Without --valid the prefixes that
    analyses read come from the scanned text itself.

    \b
    Example:
        ffmem analyse out/scan --only values,refinement --sample 1000
    """
    from ffmem.analyses.analysis import sizes_of
    from ffmem.analyses.catalogue import parse_names
    from ffmem.analyses.inputs.study_inputs import (
        StudyInputs,
        scanned_control_inputs,
        scanned_model,
    )
    from ffmem.analyses.runner import run_analyses
    from ffmem.analyses.study import open_study
    from ffmem.cli.claims import print_verdicts
    from ffmem.cli.output import terminal
    from ffmem.store.folder import StudyFolder
    from ffmem.store.scan_store import ScanStore

    if figures:
        check_address_space(FIGURES, "an analysis with figures (--no-figures makes none)")
    names, once_more = parse_names(only), parse_names(again) if again else ()
    store = ScanStore.open(folder)
    sizes = sizes_of(size, len(store.memories))
    sizes = sizes if sample is None else replace(sizes, sample=sample)
    chat = store.manifest.key.source().chat
    text = None if valid is None else validation_text(valid, chat)
    with while_loading(store.manifest.key.model["name"]):
        model = scanned_model(store, device)
    subject = StudyInputs(model, store, sizes, text, seed)
    if control is not None:
        folder = StudyFolder(folder).control(control).root
        subject = scanned_control_inputs(subject, control, folder)
    events = run_analyses(subject, names, folder, once_more, print_event)
    study = open_study(folder)
    own = [one.analysis for one in events if one.state != "failed"]
    if verdicts := [one for one in study.verdicts if one.finding and one.analysis in own]:
        print_verdicts(terminal(), verdicts, claims)
    if figures:
        study.draw(own)
        files = StudyFolder(folder)
        say(f"numbers in {files.analyses}, figures in {files.figures}")
    raise SystemExit(exit_code(events))


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--keys", type=SOME, default=10, show_default=True, help="Random keys per layer.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the drawn keys.")
@click.option(
    "--annotator",
    default=RULES,
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
    if annotator == RULES:
        name = "patterns"
        made_from = key_of_scan(name, store, Sizes(pattern_keys=keys), seed)
    else:
        name = "patterns-" + re.sub(r"\W+", "-", annotator)
        scan = store.manifest.key.digest
        made_from = {"annotator": annotator, "seed": seed, "scan": scan}
    if not again:
        refuse_other_settings(folder, {name: made_from}, "--again")
    if annotator == RULES:
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
