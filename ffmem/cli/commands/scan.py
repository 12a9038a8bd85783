"""`ffmem scan MODEL CORPUS -o DIR`: find the texts that trigger every memory most."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ffmem.cli.options import ModelOptions, cluster_options, load_model, model_options, placement
from ffmem.cli.output import say
from ffmem.cli.parameters import ANY, OUTPUT
from ffmem.cli.scan_plan import (
    corpus_options,
    layers_of,
    plan_of,
    refuse_missing_files,
    trigger_options,
    warn_of_shortage,
    warn_of_wrapping,
)
from ffmem.steps import listen
from ffmem.text import duration_text

if TYPE_CHECKING:
    from ffmem.address import Address
    from ffmem.execution.checkpoint import ScanProgress
    from ffmem.execution.executor import Cluster
    from ffmem.execution.plan import ScanPlan
    from ffmem.execution.single_process import ScanWatch
    from ffmem.store.scan_store import ScanStore


FEW_SENTENCES = 5000  # below which a memory's best triggers are weak ones
TOP_VALUES = 200  # values with the highest top-token probability, for one to look at first


@click.command()
@click.argument("model")
@click.argument("corpus")
@click.option("-o", "--out", type=OUTPUT, required=True, help="Folder or URL to write.")
@click.option(
    "--per-sentence",
    type=click.Choice(["max", "all"]),
    default="max",
    show_default=True,
    help="One prefix per sentence and memory, or every prefix.",
)
@click.option(
    "--min-prefix", type=ANY, default=1, show_default=True, help="Shortest prefix, in tokens."
)
@click.option("--include-final", is_flag=True, help="Let whole sentences be triggers too.")
@click.option(
    "--dedupe",
    type=click.Choice(["none", "sentence", "prefix"]),
    default="none",
    show_default=True,
    help="Keep one trigger per memory among equal ones.",
)
@click.option(
    "--values/--no-values",
    default=True,
    help="Rank what every value promotes when the text is read, or leave that to a later run.",
)
@trigger_options
@corpus_options
@cluster_options
@model_options
def scan(model: str, corpus: str, out: Path, **options: Any) -> None:
    r"""Find the texts of CORPUS that trigger each memory (MLP neuron) of MODEL most.

    Keeps the prefixes with the highest coefficient (max-activating examples).

    CORPUS is a file (.txt: a document per line; .jsonl, .csv, .tsv, .parquet: a document per row;
    also .gz, .xz, .zst), a folder or glob of such files, a Hugging Face dataset id, - for standard
    input, or demo (demo:valid), the embedded text. Files and folders may be at a URL (s3://,
    gs://). The same command resumes a scan that was stopped.

    With --chat each row holds a conversation, in the column messages or conversations.

    When the text is read the scan is whole: show, search and explore work. After that the values
    are ranked, once for each model; Ctrl-C or --no-values leaves this to the next run.

    \b
    Examples:
        ffmem scan demo demo --max-sentences 2000 -o out/scan
        ffmem scan smollm2 chats.jsonl --chat -o out/chats
        ffmem scan MODEL corpus.txt -o out/scan --devices all
        ffmem scan MODEL s3://bucket/text -o s3://bucket/scan --ray --workers 8
    """
    began = time.monotonic()
    model_choice, cluster = placement(model, options)
    if cluster is None:
        store = _scan_here(model, model_choice, corpus, out, options)
    else:
        store = _scan_there(cluster, model, model_choice, plan_of(None, corpus, **options), out)
    counts = store.manifest.counts
    say(
        f"{sum(store.memories.values()):,} memories, {counts['sentences']:,} sentences, "
        f"{counts['tokens']:,} tokens, {duration_text(time.monotonic() - began)} -> {out}\n"
        f"see one with: ffmem show {out} {_clear_memory(store)}{note_on_size(store)}"
    )
    if not store.has_rankings:
        say("its values are not ranked; the same command without --no-values does that")


def _clear_memory(store: ScanStore) -> Address:
    """A memory worth a first look: its value's top token follows its strongest trigger."""
    import numpy as np

    from ffmem.store.search.lookup import MemoryIndex

    index, last = MemoryIndex.at_once(store), store.manifest.layers[-1][0]
    surest = np.argsort(-index.statistic("probability"))[:TOP_VALUES] if store.has_rankings else ()
    for cell in store.cells.addresses(surest):
        for trigger in store.triggers(cell)[:1]:
            if trigger.next == index.value_tokens(cell, count=1)[0].text:
                return cell
    return store.cells.address(store.cells.rows_of(last).start)


def _scan_here(
    model: str, choice: ModelOptions, corpus: str, out: Path, options: dict[str, Any]
) -> ScanStore:
    """Scan in this process."""
    from ffmem.execution.run import run_scan

    refuse_missing_files(corpus)
    language_model = load_model(model, choice)
    plan = plan_of(language_model, corpus, **options)
    warn_of_wrapping(plan)
    language_model = language_model.with_experts(plan.experts)
    warn_of_shortage(language_model, plan)
    chosen = layers_of(language_model, plan)
    memories = sum(layer.memories for layer in chosen)
    with progress_line(f"{len(chosen)} layers, {memories:,} memories", plan) as watch:
        return run_scan(language_model, plan, out, watch)


def note_on_size(store: ScanStore) -> str:
    """What to know about triggers that come from little text; empty where there is enough."""
    sentences = store.manifest.counts["sentences"]
    if sentences >= FEW_SENTENCES:
        return ""
    return (
        f"\nonly {sentences:,} sentences: triggers are weak below some thousand, so scan more text "
        "before you judge a memory by them"
    )


def _scan_there(
    cluster: Cluster, model: str, choice: ModelOptions, plan: ScanPlan, out: Path
) -> ScanStore:
    """Scan by several processes; the model is loaded by them and not here."""
    from ffmem.execution.run import run_scan_on_ray
    from ffmem.execution.worker import ModelChoice

    with progress_line("all workers", plan) as watch:
        return run_scan_on_ray(cluster, ModelChoice(model, **choice), plan, out, watch)


@contextmanager
def progress_line(what: str, plan: ScanPlan) -> Iterator[ScanWatch]:
    """One line that says how fast the scan is and how long it will take."""
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Line

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
    )
    with Line(*columns, transient=True) as line:
        task = line.add_task(what, total=None)

        def watch(progress: ScanProgress, share: float | None) -> None:
            speed = progress.tokens / max(progress.seconds, 1e-9)
            seen = progress.sentences / plan.max_sentences if plan.max_sentences else share
            line.update(
                task,
                total=None if share is None else 1.0,
                completed=seen or 0.0,
                description=f"{what}, {progress.tokens:,} tokens, {speed:,.0f} tokens/s",
            )

        def ranking(doing: str, share: float) -> None:
            says = f"the scan can be read; {doing}"
            line.update(task, total=1.0, completed=share, description=says)

        with listen(ranking):
            yield watch
