"""`ffmem effect` and `ffmem patch`: what editing a set of memories does, and the edit as a file.

A patch is a small file of weights that can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.options import (
    LOCATION,
    SEED,
    SOME,
    ModelOptions,
    edits_option,
    load_model,
    model_options,
    scan_means,
    text_form_option,
)
from ffmem.cli.output import print_hanging, print_parts, say, terminal
from ffmem.errors import EditError
from ffmem.locations import refuse_place

if TYPE_CHECKING:
    from torch import Tensor

    from ffmem.analyses.effect import LossChange, TaskEffect, TextEffect
    from ffmem.corpus.sentences import SentenceSettings
    from ffmem.corpus.sources import Source
    from ffmem.memories.edits import Edit
    from ffmem.models.language_model import LanguageModel
    from ffmem.models.patches import ValueChange

SENTENCES = 100


@click.command()
@click.argument("model")
@click.argument("corpus")
@edits_option
@click.option(
    "--max-sentences", type=SOME, default=SENTENCES, show_default=True, help="Sentences read."
)
@click.option(
    "--random",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Random sets as control.",
)
@click.option("--task", type=LOCATION, help="JSON lines of prompt and answer: report accuracy too.")
@click.option(
    "--generate",
    multiple=True,
    metavar="TEXT",
    help="Generate from TEXT with and without the edit.",
)
@click.option("--most", type=SOME, default=24, show_default=True, help="Tokens to generate.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of random sets.")
@text_form_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def effect(  # noqa: PLR0913 - one parameter per option
    model: str,
    corpus: str,
    edits: Sequence[str],
    max_sentences: int,
    random: int,
    task: Path | None,
    generate: Sequence[str],
    most: int,
    seed: int,
    no_wikitext_form: bool,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Measure what editing a set of memories does to MODEL on CORPUS.

    Prints the change of the loss and of top-1, and KL, per token; as a control the same for random
    sets of as many
    memories of the same layers with nearly the same fire rate. A set is a text file of addresses,
    one per line, written by hand, by `ffmem search --save` or by `ffmem contrast --save`.

    \b
    Example:
        ffmem effect tiny:opt corpus.txt --set @numbers.txt=0
    """
    import torch

    from ffmem import demo
    from ffmem.analyses.effect import (
        coefficient_rates,
        continuations,
        random_sets,
        read_tasks,
        task_effect,
        text_effect,
    )
    from ffmem.corpus.sentences import SentenceSettings
    from ffmem.corpus.sources import Source
    from ffmem.memories.edits import expand_edits
    from ffmem.store.result_files import to_plain

    tasks = None if task is None else read_tasks(task)
    language_model = load_model(model, options)
    if no_wikitext_form:
        language_model = language_model.without_wikitext_form()
    rows = first_rows(
        language_model, Source(demo.corpus(corpus)), SentenceSettings(), max_sentences
    )
    rates = coefficient_rates(language_model, rows)
    parsed = expand_edits(edits, language_model, rates.means)
    generator = torch.Generator().manual_seed(seed)
    controls = random_sets(language_model, parsed, rates, random, generator)
    found = text_effect(language_model, rows, parsed, controls, generator)
    answers = None if tasks is None else task_effect(language_model, tasks, parsed)
    texts = [(text, *continuations(language_model, text, parsed, most)) for text in generate]
    if as_json:
        data: dict[str, Any] = {"edits": list(edits), "text": to_plain(found)}
        data["task"] = to_plain(answers)
        data["generated"] = [
            {"prompt": text, "as_it_is": plain, "edited": changed} for text, plain, changed in texts
        ]
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    print_effect(found, answers)
    for text, plain, changed in texts:
        for head, written in (("after ", text), ("  as it is: ", plain), ("  edited:   ", changed)):
            print_hanging(terminal(), head, repr(written))


def first_rows(
    model: LanguageModel, source: Source, settings: SentenceSettings, count: int
) -> list[Tensor]:
    """The first sentences of a text as token ids."""
    import torch

    from ffmem.corpus.sentences import tokenise
    from ffmem.corpus.shards import shards
    from ffmem.corpus.sources import documents

    longest = min(settings.max_tokens, model.context_length - 1)
    settings = replace(settings, max_tokens=longest)

    def every() -> Iterator[Tensor]:
        for shard in shards(documents(source)):
            found = tokenise(shard, model.tokenizer, settings)
            for start, end in zip(found.starts[:-1], found.starts[1:], strict=True):
                yield torch.from_numpy(found.tokens[start:end].astype("int64"))

    return list(islice(every(), count))


def print_effect(found: TextEffect, answers: TaskEffect | None) -> None:
    """The edit, then each random set."""
    console = terminal()
    memories = "memory" if found.memories == 1 else "memories"
    print_hanging(
        console,
        "",
        f"{found.memories:,} {memories} edited, {found.sentences:,} sentences, {found.tokens:,} "
        f"tokens; as it is: loss {found.loss:.4f}, top-1 {100 * found.top_1:.1f} %",
    )
    print_parts(console, "the edit     ", change_parts(found.edit))
    for number, change in enumerate(found.random, 1):
        print_parts(console, f"random {number:<5} ", change_parts(change))
    if found.random:
        say(f"{found.stronger} of {len(found.random)} random sets change the loss at least as much")
    if answers is not None:
        print_hanging(
            console,
            f"{answers.tasks} tasks: ",
            f"{100 * answers.accuracy:.1f} % right as it is, "
            f"{100 * answers.edited_accuracy:.1f} % edited; log-probability of the answer "
            f"{answers.log_probability:.3f} and {answers.edited_log_probability:.3f}",
        )


def change_parts(change: LossChange) -> list[str]:
    """Loss, KL and top-1, with 95 % intervals over sentences."""
    loss, kl, top = change.loss, change.kl, change.top_1
    return [
        f"loss {loss.estimate:+.4f} ({loss.low:+.4f} .. {loss.high:+.4f})",
        f"KL {kl.estimate:.4f} ({kl.low:.4f} .. {kl.high:.4f})",
        f"top-1 {100 * top.estimate:+.2f} points",
    ]


@click.command()
@click.argument("model")
@edits_option
@click.option("-o", "--out", type=LOCATION, required=True, help="Folder for the patch.")
@click.option("--scan", type=LOCATION, help="Scan that =mean takes the mean coefficients from.")
@model_options
def patch(
    model: str, edits: Sequence[str], out: Path, scan: Path | None, **options: Unpack[ModelOptions]
) -> None:
    r"""Save edits of MODEL's memories as a patch of its weights.

    Writes patch.safetensors (the old and the new values of the memories) and patch.json (the
    weights that it is for). `ffmem.load(MODEL, patch=DIR)` applies it; `ffmem.remove_patch`
    restores exactly the original weights. Holding a memory at a number other than 0 needs a layer
    with a bias.

    \b
    Example:
        ffmem patch tiny:opt --set L2.7=0 -o out/patch
    """
    from ffmem.memories.edits import expand_edits
    from ffmem.models.patches import write_patch

    refuse_place(out)
    language_model = load_model(model, options)
    means = None if scan is None else scan_means(scan, language_model, options["dtype"])
    parsed = expand_edits(edits, language_model, means)
    count = sum(len(language_model.places_of(edit.address)) for edit in parsed)
    folder = write_patch(
        language_model, value_changes(language_model, parsed), [str(e) for e in parsed], out
    )
    memories = "1 memory" if count == 1 else f"{count:,} memories"
    say(f"-> {folder}: {memories}; load it with ffmem.load(..., patch={str(out)!r})")


def value_changes(model: LanguageModel, edits: Sequence[Edit]) -> dict[int, ValueChange]:
    """Edits as changes of values, by layer; memories by their places in the layer's arrays."""
    from ffmem.models.patches import ValueChange

    found: dict[int, ValueChange] = {}
    for edit in edits:
        if edit.address.sign:
            raise EditError(
                f"{edit.address} is one sign of a memory, which no change of weights can edit; "
                f"write {str(edit.address)[:-1]}"
            )
        change = found.setdefault(edit.address.layer, ValueChange({}, {}))
        for index in model.places_of(edit.address):
            if index in change.factors:
                raise EditError(f"{edit.address} is edited twice; write each memory once")
            change.factors[index] = edit.amount if edit.action == "scale" else 0.0
            if edit.action == "set":
                change.held[index] = edit.amount
    return found
