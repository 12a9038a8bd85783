"""`ffmem patterns DIR`: which patterns the triggers of keys share, by layer.

`ffmem removal DIR`: which token of a trigger a key needs.
"""

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
    ModelOptions,
    database_option,
    embedder,
    embedding_options,
    model_for,
    model_options,
    names_damage,
    open_database,
    while_loading,
)
from ffmem.cli.output import percent_text, print_columns, say

if TYPE_CHECKING:
    from ffmem.analyses.removal import Removal, Variant
    from ffmem.analyses.statistics import Interval
    from ffmem.annotations.agreement import AnnotatorPatterns
    from ffmem.patterns.analysis import ControlRate, PatternResults
    from ffmem.patterns.record import Summary
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.inputs import StudyInputs

# Per layer: the paper's, and what takes a minute with the demo model.
REMOVAL_KEYS = {"cuda": 100, "cpu": 10}


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
def patterns(  # noqa: PLR0913 - one parameter per option
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
    from ffmem.annotations.agreement import patterns_by_annotator
    from ffmem.store.range_checks import refuse_damage
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)
    refuse_damage(store)
    study: PatternResults | AnnotatorPatterns
    if annotator == "rules":
        name = "patterns"
        study, made_from = by_rule(store, keys, seed, options)
    else:
        name = "patterns-" + re.sub(r"\W+", "-", annotator)
        answers = open_database(folder, database).answers()
        study = patterns_by_annotator(
            store, answers, annotator, lambda: embedder(store, options), seed
        )
        made_from = {"annotator": annotator, "embedding": options["embedding"], "seed": seed}
        made_from["scan"] = store.manifest.key.digest
    print_summary(study.summary)
    print_controls(study.controls, getattr(study, "semantic_keys", None))
    print_held_out(study.held_out)
    save_patterns(folder, name, study, made_from)


def by_rule(
    store: ScanStore, keys: int, seed: int, options: EmbeddingOptions
) -> tuple[PatternResults, dict[str, Any]]:
    """The study by the rule annotator, and all that decides it."""
    from ffmem.patterns.analysis import patterns_by_rule
    from ffmem.studies.inputs import Sizes, StudyInputs
    from ffmem.studies.registry import ANALYSES, result_key

    if (name := options["embedding"]) != "text":
        made_from = {"embedding": name, "pattern_keys": keys, "seed": seed}
        made_from["scan"] = store.manifest.key.digest
        return patterns_by_rule(store, embedder(store, options), keys, seed, name), made_from
    model = model_for(store, options)
    subject = StudyInputs(model, store, Sizes(pattern_keys=keys), seed=seed)
    return ANALYSES["patterns"].run(subject), result_key("patterns", subject)


def save_patterns(folder: Path, name: str, study: Any, made_from: dict[str, Any]) -> None:
    """Leave the numbers and the figure in the scan's folder."""
    from ffmem.cli.output import save_result
    from ffmem.figures.patterns import patterns_chart

    chart = patterns_chart(study.summary, study.controls)
    say(f"-> {save_result(folder, name, study, made_from, chart)}")


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
        f"{keys_text(overall.keys)}, {100 * overall.with_pattern.estimate:.0f} % with a pattern; "
        f"semantic patterns lead {where}"
    )


def keys_text(count: int) -> str:
    """A number of keys in words."""
    return f"{count:,} key" if count == 1 else f"{count:,} keys"


def print_controls(controls: Sequence[ControlRate], semantic: Interval | None = None) -> None:
    """The false-pattern rate on control keys, and the semantic share beside the hardest ones'."""
    from ffmem.patterns.analysis import BAR, hardest_control

    for control in controls:
        rate = control.false_patterns
        say(
            f"control keys of {CONTROL_WORDS[control.kind]}: {100 * rate.estimate:.1f} % have a "
            f"pattern ({100 * rate.low:.1f} .. {100 * rate.high:.1f}, {keys_text(rate.n)}), "
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


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--keys",
    type=SOME,
    help="Random keys per layer.  [default: 100 on a GPU, as in the paper; 10 on a CPU]",
)
@click.option("--top", type=SOME, default=50, show_default=True, help="Triggers per key.")
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of the drawn keys and tokens."
)
@click.option(
    "--random-interior",
    "interior",
    is_flag=True,
    help="Draw the random token between the first and the last; writes removal-interior.",
)
@click.option(
    "--unclipped",
    is_flag=True,
    help="Let coefficients fall below 0 (smooth or gated); writes removal-unclipped.",
)
@click.option("--model", help="The scanned model, if it cannot be found under its own name.")
@model_options
@names_damage
def removal(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    keys: int | None,
    top: int,
    seed: int,
    interior: bool,
    unclipped: bool,
    model: str | None,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Remove the first, the last or a random token of triggers and measure the coefficients again.

    Writes analyses/removal.json and figures/removal.png into FOLDER, or into FOLDER/other-settings/
    where the study has that result for other keys, triggers or seed.

    \b
    Example:
        ffmem removal out/scan --keys 10
    """
    from ffmem.analyses.removal import Variant
    from ffmem.store.range_checks import refuse_damage
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.inputs import Sizes, StudyInputs, scanned_model

    store = ScanStore.open(folder)
    refuse_damage(store)
    with while_loading(model or store.manifest.key.model["name"]):
        language_model = scanned_model(store, name=model, **options)
    keys = keys or REMOVAL_KEYS["cuda" if language_model.device.type == "cuda" else "cpu"]
    sizes = Sizes(removal_keys=keys, removal_triggers=top)
    say(f"{keys_text(keys)} in each of {len(store.memories)} layers, {top} triggers each")
    subject = StudyInputs(language_model, store, sizes, seed=seed)
    variant = Variant(interior, clipped=not unclipped)
    say(f"-> {measure_removal(subject, variant, folder)}")


def measure_removal(subject: StudyInputs, variant: Variant, folder: Path) -> str:
    """Measure, print and leave numbers and figure behind; what was written, in words."""
    from ffmem.analyses.removal import AS_PUBLISHED
    from ffmem.analyses.removal import removal as measure
    from ffmem.cli.output import other_place_note, save_figure, save_result
    from ffmem.figures.patterns import removal_chart
    from ffmem.store.folder import StudyFolder
    from ffmem.store.result_files import place_for
    from ffmem.studies.registry import result_key
    from ffmem.studies.runner import make_result

    made_from = result_key("removal", subject)
    if variant == AS_PUBLISHED:
        place = place_for(folder, "removal", made_from)
        result, _ = make_result(subject, "removal", place)
        print_removal(result)
        figure = save_figure(place, "removal", removal_chart(result))
        return f"{StudyFolder(place).result('removal')}, {figure}{other_place_note(place, folder)}"
    sizes = subject.sizes
    result = measure(
        subject.model,
        subject.store,
        sizes.removal_keys,
        sizes.removal_triggers,
        subject.seed,
        variant,
    )
    print_removal(result)
    chosen = {"interior": variant.interior, "unclipped": not variant.clipped}
    name = "-".join(["removal", *(word for word, on in chosen.items() if on)])
    return save_result(folder, name, result, made_from | chosen, removal_chart(result))


def print_removal(result: Removal) -> None:
    """One line per layer: mean change in percent, interval over keys, sizes."""
    say("change of the coefficient in % when a token is removed (95 % over keys)")
    rows = [
        [
            f"{layer.layer:5}",
            *(percent_text(one.mean) for one in (layer.first, layer.last, layer.random)),
            f"{layer.triggers:8,}",
        ]
        for layer in result.layers
    ]
    print_columns(("layer", "first token", "last token", "random token", "triggers"), rows)
    dead, short = (sum(getattr(each, name) for each in result.layers) for name in ("dead", "short"))
    silent = sum(layer.silent for layer in result.layers)
    say(
        f"left out: {dead:,} dead keys, {short:,} triggers of one token, "
        f"{silent:,} that do not fire when read again; {result.tokens:,} tokens read"
    )
