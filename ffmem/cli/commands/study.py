"""`ffmem study MODEL CORPUS -o DIR`: the whole paper on a model, with a report.

`ffmem analyse DIR` answers the paper's questions about a scan, with figures; `ffmem report DIR`
draws figures and report from the results that are there.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.commands.scan import (
    EXPERTS_HELP,
    corpus_options,
    layers_of,
    note_on_size,
    plan_of,
    refuse_missing_files,
    warn_of_shortage,
    warn_of_wrapping,
)
from ffmem.cli.options import (
    ANY,
    LOCATION,
    SEED,
    SOME,
    cluster_options,
    load_model,
    model_options,
    names_damage,
    placement,
    while_loading,
)
from ffmem.cli.output import say
from ffmem.cli.progress import exit_code, print_event
from ffmem.store.folder import check_folder

if TYPE_CHECKING:
    from ffmem.corpus.sources import Source
    from ffmem.models.language_model import LanguageModel
    from ffmem.scaleout.executor import Cluster
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.inputs import StudyInputs
    from ffmem.workflows import StudyPlan

DEMO_SENTENCES = 6000  # what a demo on two cores reads, unless told otherwise


@click.command()
@click.argument("model")
@click.argument("corpus", required=False)
@click.option("-o", "--out", type=LOCATION, help="Folder; out/MODEL by default.")
@click.option("--valid", help="Validation text, named like CORPUS; by default the scanned text.")
@click.option(
    "--size",
    type=click.Choice(["auto", "paper", "small"]),
    default="auto",
    show_default=True,
    help="How much to measure: as in the paper, or what two CPU cores can do in minutes.",
)
@click.option(
    "--twin/--no-twin",
    default=True,
    show_default=True,
    help="Study an untrained model of the same shape too, on as much text. About doubles the time; "
    "without it no claim can hold.",
)
@click.option("--only", help="Analyses to run, e.g. values,refinement; all by default.")
@click.option("--again", help="Analyses to run even if their result exists; also: report.")
@click.option(
    "-k", "--top", type=SOME, default=50, show_default=True, help="Triggers kept per memory."
)
@click.option(
    "--sample", type=ANY, default=32, show_default=True, help="Random triggers kept per memory."
)
@click.option("--layers", help="Layers to study, e.g. 1-4,9; all by default.")
@click.option("--experts", help=EXPERTS_HELP)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Seed of drawn prefixes, memories and shuffles.",
)
@click.option("--budget", type=SOME, help="Tokens per batch; by default what suits the device.")
@corpus_options
@cluster_options
@model_options
def study(model: str, corpus: str | None, out: Path | None, **options: Any) -> None:
    r"""Study MODEL on CORPUS: scan, every analysis of the paper, figures and a report.

    Ends with a table of the paper's claims and whether they hold for this model, more than for an
    untrained twin of the same shape, and the path of report.html; for a checkpoint of the paper's
    own shape also with the values that the paper names. Results that exist for the same settings
    are reused, so the same command resumes a study that was stopped. `ffmem study demo` needs no
    corpus.

    \b
    Examples:
        ffmem study demo
        ffmem study MODEL corpus.txt --valid valid.txt -o out/mine
    """
    from ffmem.analyses.predictive_values import is_papers_model, paper_values
    from ffmem.cli.output import print_paper_values, print_verdicts, terminal
    from ffmem.cli.progress import (
        duration_text,
        exit_code,
        print_failures,
        print_plan,
        progress_lines,
    )
    from ffmem.report.build import build
    from ffmem.studies.estimates import SCAN, estimate, results_there
    from ffmem.workflows import run_study_plan, twin_analyses

    began = time.monotonic()
    if corpus is None and model != "demo":
        raise click.UsageError(f"which text should {model} be studied on? name a CORPUS")
    folder = out or Path("out") / Path(model).name
    check_folder(folder)
    refuse_missing_files("demo" if corpus is None else corpus)
    choice, cluster = placement(model, options, copies=2)  # here, and in a process that scans
    language_model = load_model(model, choice)
    again = _again(options.pop("again"))
    plan = _plan(language_model, "demo" if corpus is None else corpus, cluster, options)
    language_model = language_model.with_experts(plan.scan.experts)
    warn_of_wrapping(plan.scan)
    console = terminal()
    there = set(
        results_there(language_model, plan.scan, folder, partial(_inputs, language_model, plan))
    )
    expected = estimate(
        language_model,
        plan.scan,
        plan.sizes,
        plan.only,
        there - set(again),
        twin=twin_analyses(plan.only) if plan.twin else (),
    )
    layers = layers_of(language_model, plan.scan)
    memories = sum(layer.memories for layer in layers)
    what = f"{model}: {memories:,} memories in {len(layers)} layers"
    print_plan(console, what, expected)
    if SCAN not in expected.there:
        warn_of_shortage(language_model, plan.scan)
    with progress_lines(console, expected) as watches:
        found, events = run_study_plan(language_model, plan, folder, again, watches)
    print_verdicts(console, build(found).verdicts)
    if is_papers_model(language_model):
        predictive = found.result("values").predictive if "values" in found.names else None
        print_paper_values(console, paper_values(language_model, predictive))
    took = duration_text(time.monotonic() - began)
    say(
        f"\nreport: {found.store.folder.report_page} ({took} in all)\n"
        f"browse it with: ffmem explore {folder}{note_on_size(found.store)}"
    )
    print_failures(events, folder)
    raise SystemExit(exit_code(events))


def _inputs(model: LanguageModel, plan: StudyPlan, store: ScanStore) -> StudyInputs:
    from ffmem.studies.inputs import StudyInputs

    return StudyInputs(model, store, plan.sizes, plan.valid, plan.seed)


def _plan(
    model: LanguageModel, corpus: str, cluster: Cluster | None, options: dict[str, Any]
) -> StudyPlan:
    from ffmem.studies.inputs import SIZES
    from ffmem.studies.registry import parse_names
    from ffmem.workflows import StudyPlan

    valid, size = options.pop("valid"), options.pop("size")
    only, seed = parse_names(options.pop("only")), options.pop("seed")
    twin = options.pop("twin")
    if twin and corpus == "-":
        say("no untrained twin, so no claim can hold: standard input is read only once")
        twin = False
    if model.name == "demo" and options["max_sentences"] is None:
        options["max_sentences"] = DEMO_SENTENCES
    if size == "auto":
        size = "paper" if model.device.type == "cuda" else "small"
    return StudyPlan(
        scan=plan_of(model, corpus, seed=seed, **options),
        sizes=SIZES[size],
        valid=None if valid is None else validation_text(valid, options["chat"]),
        only=only,
        seed=seed,
        cluster=cluster,
        twin=twin,
    )


def validation_text(path: str, chat: bool) -> Source:
    """The validation text, which must be there: plain, or conversations like the scanned text."""
    from ffmem import demo
    from ffmem.corpus.conversations import MESSAGES
    from ffmem.corpus.sources import Source, refuse_missing

    return refuse_missing(Source(demo.corpus(path), MESSAGES if chat else "text", chat=chat))


def _again(text: str | None) -> tuple[str, ...]:
    """Analyses to make again; the report is one of them here."""
    from ffmem.studies.registry import parse_names
    from ffmem.workflows import REPORT

    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    analyses = ",".join(name for name in names if name != REPORT)
    return (
        *(parse_names(analyses) if analyses else ()),
        *(REPORT for name in names if name == REPORT),
    )


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
    "--sample", type=SOME, help="Number of validation prefixes, instead of that of --size."
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
    type=click.Choice(["random-weights"]),
    help="Run on an untrained model of the same shape instead; its results are kept separately.",
)
@click.option(
    "--figures/--no-figures", default=True, help="Draw the figures, or save numbers only."
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
@names_damage
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
) -> None:
    r"""Answer the paper's questions about the scan in FOLDER.

    Prints the claims that the study's own results decide, with their numbers. Writes
    FOLDER/analyses/NAME.json and FOLDER/figures/: each figure as a page, SVG, PNG and its
    numbers as CSV and JSON. A result that exists for the same settings is reused. One that
    exists for other settings stays the study's own, and the new one goes to
    FOLDER/other-settings/; with --again the new one becomes the study's own and the earlier one
    goes there. Without --valid the prefixes of composition, refinement and causal come from the
    scanned text itself.

    \b
    Example:
        ffmem analyse out/scan --only values,refinement --sample 1000
    """
    from dataclasses import replace

    from ffmem.cli.output import print_verdicts, terminal
    from ffmem.report.paper_claims import judge
    from ffmem.store.folder import StudyFolder
    from ffmem.store.scan_store import ScanStore
    from ffmem.studies.inputs import SIZES, StudyInputs, scanned_model, untrained_inputs
    from ffmem.studies.registry import parse_names
    from ffmem.studies.runner import run_analyses
    from ffmem.studies.study import draw_other_settings, open_study

    names, once_more = parse_names(only), parse_names(again) if again else ()
    store = ScanStore.open(folder)
    sizes = SIZES[size] if sample is None else replace(SIZES[size], sample=sample)
    chat = store.manifest.key.source().chat
    text = None if valid is None else validation_text(valid, chat)
    with while_loading(store.manifest.key.model["name"]):
        model = scanned_model(store, device)
    subject = StudyInputs(model, store, sizes, text, seed)
    if control is not None:
        folder = StudyFolder(folder).control.root
        subject = untrained_inputs(subject, folder)
    events = run_analyses(subject, names, folder, once_more, print_event, take_over=once_more)
    study = open_study(folder)
    own = [one.analysis for one in events if one.beside is None and one.state != "failed"]
    if verdicts := [one for one in judge(study) if one.finding and one.analysis in own]:
        print_verdicts(terminal(), verdicts)
    if figures:
        study.draw(own)
        for event in events:
            if event.beside is not None and event.state != "failed":
                draw_other_settings(event.beside, event.analysis)
        files = StudyFolder(folder)
        say(f"numbers in {files.analyses}, figures in {files.figures}")
    raise SystemExit(exit_code(events))


@click.command()
@click.argument("folder", type=LOCATION)
@names_damage
def report(folder: Path) -> None:
    r"""Draw the figures and write the report of the study in FOLDER from its results.

    Runs no model; use it for results from another machine or from `ffmem analyse`.

    \b
    Example:
        ffmem report out/scan
    """
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)  # a wrong folder is named before anything slow is imported
    from ffmem.cli.output import print_verdicts, terminal
    from ffmem.report.build import build, write_report
    from ffmem.studies.study import Study

    study = Study(store)
    study.draw()
    page = write_report(study)
    print_verdicts(terminal(), build(study).verdicts)
    say(f"\nreport: {page}\nbrowse it with: ffmem explore {folder}")
