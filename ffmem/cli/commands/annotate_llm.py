"""`ffmem annotate llm DIR`: let a language model answer the sheets."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.options import (
    LOCATION,
    POSITIVE,
    SOME,
    ModelOptions,
    database_option,
    endpoint_options,
    key_sample_options,
    model_options,
    open_database,
)
from ffmem.cli.output import say

if TYPE_CHECKING:
    from ffmem.annotations.chat import CachedChat, Usage
    from ffmem.annotations.llm_annotator import LlmAnswer, Price


class PriceType(click.ParamType[Any]):
    """Two prices, as in 0.15,0.60."""

    name = "READ,WRITTEN"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Price:
        """Read the two numbers."""
        from ffmem.annotations.llm_annotator import Price

        try:
            reading, writing = (float(part) for part in value.split(","))
        except ValueError:
            reading = writing = math.nan
        if not (0 <= reading < math.inf and 0 <= writing < math.inf):
            self.fail(f"{value!r} is not a price; write two numbers, as in 0.15,0.60", param, ctx)
        return Price(reading, writing)


@click.command()
@click.argument("folder", type=LOCATION)
@click.option(
    "--llm",
    "name",
    required=True,
    help="The model that annotates: its name at the endpoint, or without an endpoint a model on "
    "this machine, named as for `ffmem scan`.",
)
@endpoint_options
@key_sample_options
@click.option("--price", type=PriceType(), help="Price of a million tokens read and written.")
@click.option("--rate", type=POSITIVE, help="Most requests per minute; no limit by default.")
@click.option("--at-once", type=SOME, default=1, show_default=True, help="Requests at a time.")
@click.option(
    "--longest", type=SOME, default=1000, show_default=True, help="Longest reply, in tokens."
)
@click.option("--dry-run", is_flag=True, help="Print what it will cost, and stop.")
@database_option
@model_options
def llm(  # noqa: PLR0913 - one parameter per option
    folder: Path,
    name: str,
    endpoint: str | None,
    key_from: str,
    keys: int,
    controls: int,
    seed: int,
    price: Price | None,
    rate: float | None,
    at_once: int,
    longest: int,
    dry_run: bool,
    database: str | None,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Let a language model annotate keys of the scan in FOLDER, including control keys.

    The keys are those that `ffmem annotate sheets` draws with the same options. The expected cost
    is printed first. Replies are checked, sent back to be corrected, and cached, so that no
    question is asked twice and the same command resumes a stopped run.

    \b
    Examples:
        ffmem annotate llm out/scan --llm smollm2 --keys 1
        ffmem annotate llm out/scan --llm NAME --endpoint https://HOST/v1
    """
    from ffmem.annotations.chat import open_chat
    from ffmem.annotations.llm_annotator import answers_by_llm, expected_usage
    from ffmem.annotations.sheets import draw_sheets
    from ffmem.store.scan_store import ScanStore

    annotations = open_database(folder, database)
    sheets = annotations.add_and_get_sheets(
        draw_sheets(ScanStore.open(folder), keys, controls, seed)
    )
    chat = open_chat(name, endpoint, os.environ.get(key_from), longest, rate, **options)
    print_cost(expected_usage(chat, sheets, longest), price)
    if dry_run:
        return
    answers = []
    for answer in answers_by_llm(chat, sheets, at_once if endpoint else 1):
        answers.append(answer)
        if answer.answers is not None:
            annotations.answer(answer.sheet, f"llm:{name}", answer.answers)
    print_usage(folder, f"llm:{name}", answers, chat, price)


def print_cost(before: Usage, price: Price | None) -> None:
    """Print the expected cost, before anything is asked."""
    from ffmem.annotations.llm_annotator import REPAIRS

    money = "" if price is None else f", for at most about {price.of(before):.4f}"
    say(
        f"{before.asked} questions to ask, {before.known} known already: about {before.read:,} "
        f"tokens to read and at most {before.written:,} to write{money}; a reply that breaks the "
        f"rules is sent back up to {REPAIRS} times, which costs as much again"
    )


def print_usage(
    folder: Path, who: str, answers: list[LlmAnswer], chat: CachedChat, price: Price | None
) -> None:
    """Print the results and the cost."""
    usage = chat.usage
    money = "" if price is None else f", {price.of(usage):.4f} paid"
    say(
        f"{usage.asked} requests, {usage.known} replies known before; {usage.read:,} tokens read, "
        f"{usage.written:,} written{money}"
    )
    refused = [answer for answer in answers if answer.answers is None]
    repaired = sum(answer.replies > 1 and answer.answers is not None for answer in answers)
    dropped = sum(len(answer.dropped) for answer in answers if answer.answers is not None)
    say(
        f"{len(answers) - len(refused)} of {len(answers)} sheets answered, {repaired} after "
        f"repair and less {dropped} patterns that broke the rules; {len(refused)} refused"
    )
    if refused:
        say(f"  e.g. sheet {refused[0].sheet.name}: {refused[0].dropped[0]}")
    if len(refused) < len(answers):
        say(f"see: ffmem patterns {folder} --annotator {who}")
