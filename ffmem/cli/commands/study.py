"""`ffmem study MODEL CORPUS -o DIR`: the whole paper on a model, with a report."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.address_space import PAGES, check_address_space, with_threads
from ffmem.cli.commands.scan import note_on_size
from ffmem.cli.options import (
    claims_option,
    cluster_options,
    database_option,
    endpoint_options,
    load_model,
    model_options,
    placement,
    while_loading,
)
from ffmem.cli.output import say
from ffmem.cli.parameters import LOCATION, OUTPUT, Whole
from ffmem.cli.progress import exit_code
from ffmem.cli.scan_plan import (
    corpus_options,
    layers_of,
    plan_of,
    refuse_missing_files,
    trigger_options,
    validation_text,
    warn_of_shortage,
    warn_of_wrapping,
)
from ffmem.cli.study_access import writes_study
from ffmem.errors import FfmemError
from ffmem.store.folder import check_folder

if TYPE_CHECKING:
    from ffmem.analyses.inputs.study_inputs import StudyInputs
    from ffmem.annotations.llm_annotator import Explainer
    from ffmem.execution.executor import Cluster
    from ffmem.models.language_model import LanguageModel
    from ffmem.store.scan_store import ScanStore
    from ffmem.workflows import StudyPlan


DEMO_SENTENCES = 6000  # what a demo on two cores reads, unless told otherwise


@click.command()
@click.argument("model")
@click.argument("corpus", required=False)
@click.option("-o", "--out", type=OUTPUT, help="Folder; out/MODEL by default.")
@click.option("--valid", help="Validation text, named like CORPUS; by default the scanned text.")
@click.option(
    "--size",
    type=click.Choice(["auto", "paper", "small"]),
    default="auto",
    show_default=True,
    help="How much to measure: as in the paper, or what two CPU cores can do in minutes.",
)
@click.option(
    "--controls/--no-controls",
    default=True,
    show_default=True,
    help="Study the model with permuted and with random weights too. About doubles the time; "
    "without it few claims can hold.",
)
@click.option("--only", help="Analyses to run, e.g. values,refinement; all by default.")
@click.option("--again", help="Analyses to run even if their result exists; also: report.")
@click.option(
    "--decide",
    is_flag=True,
    help="MODEL is the folder of a finished study: measure what would decide the claims that it "
    "left undecided, and nothing else.",
)
@click.option(
    "--minutes",
    type=Whole(1, 100_000),
    default=10,
    show_default=True,
    help="With --decide: begin nothing that would take longer than is left of them.",
)
@claims_option
@trigger_options
@corpus_options
@cluster_options
@model_options
def study(  # noqa: PLR0913 - one parameter per option
    model: str,
    corpus: str | None,
    out: Path | None,
    claims: bool,
    decide: bool,
    minutes: int,
    **options: Any,
) -> None:
    r"""Study MODEL on CORPUS: scan, every analysis of the paper, figures and a report.

    Ends with the paper's claims and whether they hold for this model, more than for the same model
    without what it has learned, and the path of report.html. The same command resumes a study that
    was stopped; results of other settings are replaced only with --again. `ffmem study demo` needs
    no corpus.

    \b
    Examples:
        ffmem study demo
        ffmem study MODEL corpus.txt --valid valid.txt -o out/mine
        ffmem study out/mine --decide --minutes 5
    """
    if decide:
        _decide_study(Path(model), minutes, options["valid"], options["device"], claims)
        return
    from ffmem.analyses.estimate import SCAN, estimate, results_there
    from ffmem.analyses.values.predictive import is_papers_model, paper_values
    from ffmem.cli.claims import print_verdicts
    from ffmem.cli.output import print_paper_values, terminal
    from ffmem.cli.progress import print_failures, print_plan, progress_lines
    from ffmem.text import duration_text
    from ffmem.workflows import control_analyses, run_study_plan

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
        controls=control_analyses(plan.only) if plan.controls else (),
    )
    layers = layers_of(language_model, plan.scan)
    memories = sum(layer.memories for layer in layers)
    what = f"{model}: {memories:,} memories in {len(layers)} layers"
    print_plan(console, what, expected)
    if SCAN not in expected.there:
        warn_of_shortage(language_model, plan.scan)
    with progress_lines(console, expected) as watches:
        found, events = run_study_plan(language_model, plan, folder, again, watches)
    print_verdicts(console, found.verdicts, claims)
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


def _decide_study(folder: Path, minutes: int, valid: str | None, device: str, claims: bool) -> None:
    """Look again at what a study left undecided, and write its report again."""
    from ffmem.analyses.inputs.study_inputs import StudyInputs, scanned_model
    from ffmem.analyses.open_claims.decisions import decide_claims, inputs_at_first
    from ffmem.analyses.study import open_study
    from ffmem.cli.claims import print_verdicts
    from ffmem.cli.output import terminal
    from ffmem.cli.progress import step_line
    from ffmem.report.build import write_report
    from ffmem.store.folder import StudyFolder, writing

    found = open_study(folder)
    text = None if valid is None else validation_text(valid, found.store.manifest.key.source().chat)
    with while_loading(found.store.manifest.key.model["name"]):
        model = scanned_model(found.store, device)
    first = StudyInputs(model, found.store, valid=text)
    with writing(StudyFolder(folder), "decide"):
        with step_line():
            after = decide_claims(
                found, lambda name: inputs_at_first(found, name, model, first), 60 * minutes, say
            )
        if after is not found:
            after.draw()
            write_report(after)
    if after is found:
        say(f"there is nothing to measure that would decide a claim in {minutes} minutes")
    print_verdicts(terminal(), after.verdicts, claims)
    say(f"\nreport: {after.store.folder.report_page}")


def _inputs(model: LanguageModel, plan: StudyPlan, store: ScanStore) -> StudyInputs:
    from ffmem.analyses.inputs.study_inputs import StudyInputs

    return StudyInputs(model, store, plan.sizes, plan.valid, plan.seed)


def _plan(
    model: LanguageModel, corpus: str, cluster: Cluster | None, options: dict[str, Any]
) -> StudyPlan:
    from ffmem.analyses.analysis import sizes_of
    from ffmem.analyses.catalogue import parse_names
    from ffmem.execution.plan import plan_layers
    from ffmem.workflows import StudyPlan

    valid, size = options.pop("valid"), options.pop("size")
    only, seed = parse_names(options.pop("only")), options.pop("seed")
    controls = options.pop("controls")
    if controls and corpus == "-":
        say("no controls, so few claims can hold: standard input is read only once")
        controls = False
    if model.name == "demo" and options["max_sentences"] is None:
        options["max_sentences"] = DEMO_SENTENCES
    if size == "auto":
        size = "paper" if model.device.type == "cuda" else "small"
    scan = plan_of(model, corpus, seed=seed, **options)
    return StudyPlan(
        scan=scan,
        sizes=sizes_of(size, len(plan_layers(model, scan))),
        valid=None if valid is None else validation_text(valid, options["chat"]),
        only=only,
        seed=seed,
        cluster=cluster,
        controls=controls,
    )


def _again(text: str | None) -> tuple[str, ...]:
    """Analyses to make again; the report is one of them here."""
    from ffmem.analyses.catalogue import parse_names
    from ffmem.workflows import REPORT

    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    analyses = ",".join(name for name in names if name != REPORT)
    return (
        *(parse_names(analyses) if analyses else ()),
        *(REPORT for name in names if name == REPORT),
    )


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--fail-if",
    multiple=True,
    metavar="CLAIM=OUTCOME",
    help="Exit with 1 if a claim has this outcome, such as upper-values-agree=does-not-hold.",
)
@claims_option
@writes_study
def report(folder: Path, fail_if: tuple[str, ...], claims: bool) -> None:
    r"""Draw the figures and write the report of the study in FOLDER from its results.

    Runs no model; use it for results from another machine or from `ffmem analyse`.

    \b
    Examples:
        ffmem report out/scan
        ffmem report out/scan --fail-if upper-values-agree=does-not-hold
    """
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)  # a wrong folder is named before anything slow is imported
    from ffmem.analyses.study import Study
    from ffmem.cli.claims import parse_condition, print_verdicts
    from ffmem.cli.output import terminal
    from ffmem.report.build import write_report

    conditions = [parse_condition(text) for text in fail_if]
    study = Study(store)
    study.draw()
    page = write_report(study)
    verdicts = study.verdicts
    print_verdicts(terminal(), verdicts, claims)
    say(f"\nreport: {page}\nbrowse it with: ffmem explore {folder}")
    if met := [one for one in verdicts if (one.name, one.word) in conditions]:
        for verdict in met:
            say(f"ffmem: {verdict.name}: {verdict.word} (--fail-if)", err=True)
        raise SystemExit(1)


LONGEST_REPLY = 1000  # tokens


@click.command()
@click.argument("folder", type=LOCATION)
@click.option("--model", help="The scanned model, if it cannot be found under its own name.")
@click.option(
    "--with",
    "others",
    multiple=True,
    type=LOCATION,
    help="Another study to compare with. Repeatable.",
)
@click.option("--port", default=8600, show_default=True, type=Whole(0, 65535))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to bind to; a non-loopback one requires a token.",
)
@click.option("--token", help="Secret that visitors must present; generated if needed.")
@database_option
@click.option(
    "--llm",
    help="A language model that explains memories on their pages: its name at the endpoint, or "
    "without an endpoint a model on this machine.",
)
@endpoint_options
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def explore(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    model: str | None,
    others: tuple[Path, ...],
    port: int,
    host: str,
    token: str | None,
    database: str | None,
    llm: str | None,
    endpoint: str | None,
    key_from: str,
    no_browser: bool,
) -> None:
    r"""Browse, search and query the study in FOLDER in a web browser.

    By default it can only be opened on this machine. The model is loaded when a page first needs
    it. Stop with Ctrl-C.

    \b
    Example:
        ffmem explore out/scan
    """
    from ffmem.store.scan_store import ScanStore

    store = ScanStore.open(folder)  # a wrong folder is named before anything slow is imported
    mapped = sum(file.bytes for file in store.manifest.files.values())
    check_address_space(with_threads() + PAGES + mapped, "the explorer")
    from ffmem.explorer.app import ListenAddress, create_app, listen, serve
    from ffmem.explorer.context import open_context as opened

    place, door = listen(ListenAddress.with_token(host, port, token))
    study = opened(
        folder, model, lambda part: click.echo(f"preparing: {part} ..."), database, others
    )
    study = replace(study, explainer=load_explainer(llm, endpoint, key_from))
    app = create_app(study, place.token)
    serve(
        app,
        place,
        door,
        lambda: click.echo(f"{folder} at {place.url}   (Ctrl-C stops)"),
        not no_browser,
    )


def load_explainer(name: str | None, endpoint: str | None, key_from: str) -> Explainer | None:
    """The language model that explains memories; its replies are kept, so none is asked twice."""
    from ffmem.annotations.chat import open_chat
    from ffmem.annotations.llm_annotator import Explainer

    if name is None:
        if endpoint is not None:
            raise FfmemError("--endpoint needs --llm, the model's name there")
        return None
    chat = open_chat(name, endpoint, os.environ.get(key_from), LONGEST_REPLY)
    return Explainer(name, chat)
