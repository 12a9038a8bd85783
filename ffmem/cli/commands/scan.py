"""`ffmem scan MODEL CORPUS -o DIR`: find the texts that trigger every memory most."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ffmem.address_space import check_address_space
from ffmem.cli.options import (
    ANY,
    OUTPUT,
    SEED,
    SOME,
    ModelOptions,
    cluster_options,
    load_model,
    model_options,
    placement,
)
from ffmem.cli.output import say
from ffmem.errors import shorten
from ffmem.steps import listen
from ffmem.text import duration_text

if TYPE_CHECKING:
    from ffmem.address import Address
    from ffmem.execution.checkpoint import ScanProgress
    from ffmem.execution.executor import Cluster
    from ffmem.execution.run import ScanPlan, ScanWatch
    from ffmem.models.feedforward import FeedForward
    from ffmem.models.language_model import LanguageModel
    from ffmem.store.scan_store import ScanStore


FEW_SENTENCES = 5000  # below which a memory's best triggers are weak ones
TOP_VALUES = 200  # values with the highest top-token probability, for one to look at first
NUMBER_RANGE = re.compile(r"(0|[1-9]\d{,3})(?:-(0|[1-9]\d{,3}))?", flags=re.ASCII)  # 3, or 1-4


def corpus_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what text is read and how it is cut."""
    for option in (
        click.option("--column", default="text", show_default=True, help="Text column or field."),
        click.option("--split", help="Split of a Hugging Face dataset, e.g. train."),
        click.option(
            "--errors",
            type=click.Choice(["strict", "replace"]),
            default="strict",
            show_default=True,
            help="How to treat bytes that are not UTF-8.",
        ),
        click.option(
            "--splitter",
            help="How documents become sentences: rule, line, none, or paragraph for text with "
            "hard line breaks.",
        ),
        click.option(
            "--max-tokens", type=SOME, default=512, show_default=True, help="Longest sentence."
        ),
        click.option("--max-sentences", type=SOME, help="Read only the first N sentences."),
        click.option(
            "--chat",
            is_flag=True,
            help="Rows hold conversations (a list of messages): read them in the model's chat "
            "template, whose own tokens are not triggers.",
        ),
        click.option("--drop-headings", is_flag=True, help="Leave out `= Title =` lines."),
        click.option("--wikitext-detok", is_flag=True, help="Undo WikiText's tokenised form."),
    ):
        command = option(command)
    return command


def trigger_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which memories are read and what is kept of each."""
    for option in (
        click.option(
            "--budget", type=SOME, help="Tokens per batch; by default what suits the device."
        ),
        click.option(
            "--seed", type=SEED, default=0, show_default=True, help="Seed of all that is random."
        ),
        click.option(
            "--experts",
            help="Experts to scan in every mixture layer, from 0, e.g. 0-7; all by default.",
        ),
        click.option("--layers", help="Layers to scan, e.g. 1-4,9; all by default."),
        click.option(
            "--sample",
            type=ANY,
            default=32,
            show_default=True,
            help="Random triggers kept per memory.",
        ),
        click.option(
            "-k",
            "--top",
            type=SOME,
            default=50,
            show_default=True,
            help="Triggers kept per memory.",
        ),
    ):
        command = option(command)
    return command


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
    from ffmem.execution import run

    refuse_missing_files(corpus)
    language_model = load_model(model, choice)
    plan = plan_of(language_model, corpus, **options)
    warn_of_wrapping(plan)
    language_model = language_model.with_experts(plan.experts)
    warn_of_shortage(language_model, plan)
    chosen = layers_of(language_model, plan)
    memories = sum(layer.memories for layer in chosen)
    with progress_line(f"{len(chosen)} layers, {memories:,} memories", plan) as watch:
        return run.run_scan(language_model, plan, out, watch)


def refuse_missing_files(corpus: str) -> None:
    """Refuse a path without files before a model is loaded; a dataset is looked for later."""
    from ffmem import demo
    from ffmem.corpus.sources import Source, is_dataset, refuse_missing

    source = Source(demo.corpus(corpus))
    if not is_dataset(source):
        refuse_missing(source)


def warn_of_wrapping(plan: ScanPlan) -> None:
    """Say so where the lines of a text seem to be pieces of sentences."""
    from ffmem.corpus.sources import has_fixed_width

    if has_fixed_width(plan.source):
        say(
            f"ffmem: most lines of {shorten(plan.source.path)} are pieces of sentences, and each "
            "line is read as a text of its own; join them with --splitter paragraph",
            err=True,
        )


def warn_of_shortage(model: LanguageModel, plan: ScanPlan) -> None:
    """Say what to lower where the scan's memory will not do; refuse a limit that is too low."""
    from ffmem.execution.plan import scan_address_space, shortage

    check_address_space(scan_address_space(model, plan), "the scan")
    words = shortage(model, plan)
    if words is not None:
        say(f"ffmem: {words}", err=True)


def note_on_size(store: ScanStore) -> str:
    """What to know about triggers that come from little text; empty where there is enough."""
    sentences = store.manifest.counts["sentences"]
    if sentences >= FEW_SENTENCES:
        return ""
    return (
        f"\nonly {sentences:,} sentences: triggers are weak below some thousand, so scan more text "
        "before you judge a memory by them"
    )


def layers_of(model: LanguageModel, plan: ScanPlan) -> list[FeedForward]:
    """The layers that are scanned."""
    if plan.layers is None:
        return list(model.layers)
    return [model.layer(number) for number in plan.layers]


def _scan_there(
    cluster: Cluster, model: str, choice: ModelOptions, plan: ScanPlan, out: Path
) -> ScanStore:
    """Scan by several processes; the model is loaded by them and not here."""
    from ffmem.execution import run

    chosen = run.ModelChoice(model, **choice)
    with progress_line("all workers", plan) as watch:
        return run.run_scan_on_ray(cluster, chosen, plan, out, watch)


def plan_of(  # noqa: PLR0913 - one parameter per option
    model: LanguageModel | None,
    corpus: str,
    *,
    column: str,
    split: str | None,
    errors: Literal["strict", "replace"],
    splitter: str | None,
    max_tokens: int,
    max_sentences: int | None,
    drop_headings: bool,
    wikitext_detok: bool,
    chat: bool,
    layers: str | None,
    experts: str | None,
    budget: int | None,
    values: bool = True,
    **settings: Any,
) -> ScanPlan:
    """The plan that a command's options describe; without a model its layers count as plain."""
    from ffmem import demo
    from ffmem.corpus.conversations import MESSAGES, template_digest
    from ffmem.corpus.sentences import SentenceSettings
    from ffmem.corpus.sources import Source
    from ffmem.corpus.splitters import DEFAULT, PARAGRAPH
    from ffmem.execution.run import ScanPlan
    from ffmem.scan.settings import ScanSettings

    if chat and (splitter or drop_headings or wikitext_detok):
        raise click.UsageError(
            "--splitter, --drop-headings and --wikitext-detok are for plain text; leave them out "
            "with --chat"
        )
    if chat and model is not None:
        template_digest(model.tokenizer, model.name)  # refuses a model without a template
    column = MESSAGES if chat and column == "text" else column
    return ScanPlan(
        source=Source(demo.corpus(corpus), column, split, errors, splitter == PARAGRAPH, chat),
        settings=ScanSettings(signed=model is not None and model.gated, **settings),
        sentences=SentenceSettings(splitter or DEFAULT, max_tokens, drop_headings, wikitext_detok),
        layers=None if layers is None else _layer_numbers(layers),
        experts=None if experts is None else expert_numbers(experts),
        max_sentences=max_sentences,
        budget=budget,
        values=values,
    )


def _layer_numbers(text: str) -> list[int]:
    """Read `1-4,9`."""
    found = _number_ranges(text)
    if found is None or found[0] < 1:
        raise click.UsageError(
            f"--layers {shorten(text)!r} is not a list of layers from 1 to 9999; write it as 1-4,9"
        )
    return found


def expert_numbers(text: str) -> list[int]:
    """Read `0-7,12`."""
    found = _number_ranges(text)
    if found is None:
        raise click.UsageError(
            f"--experts {shorten(text)!r} is not a list of experts from 0 to 9999; write it as "
            "0-7,12"
        )
    return found


def _number_ranges(text: str) -> list[int] | None:
    """The numbers of a list with ranges, in order; None where it is not one."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = NUMBER_RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            return None
        numbers |= set(range(first, last + 1))
    return sorted(numbers)


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
