"""What a scan reads: the options that say so, and the plan that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from ffmem.address_space import check_address_space
from ffmem.cli.output import say
from ffmem.cli.parameters import ANY, SEED, SOME
from ffmem.errors import shorten

if TYPE_CHECKING:
    from ffmem.corpus.sources import Source
    from ffmem.execution.plan import ScanPlan
    from ffmem.models.feedforward import FeedForward
    from ffmem.models.language_model import LanguageModel


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
    from ffmem.execution.plan import ScanPlan
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


def validation_text(path: str, chat: bool) -> Source:
    """The validation text, which must be there: plain, or conversations like the scanned text."""
    from ffmem import demo
    from ffmem.corpus.conversations import MESSAGES
    from ffmem.corpus.sources import Source, refuse_missing

    return refuse_missing(Source(demo.corpus(path), MESSAGES if chat else "text", chat=chat))


def layers_of(model: LanguageModel, plan: ScanPlan) -> list[FeedForward]:
    """The layers that are scanned."""
    if plan.layers is None:
        return list(model.layers)
    return [model.layer(number) for number in plan.layers]


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
