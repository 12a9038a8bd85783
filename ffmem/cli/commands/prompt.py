"""`ffmem prompt MODEL TEXT`: the prediction at one place, and the memories that made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import ModelOptions, json_option, model_options, position_option
from ffmem.cli.output import print_hanging, print_json, print_text_read, say, terminal, token_words
from ffmem.cli.parameters import LOCATION, SOME
from ffmem.cli.study_access import load_beside
from ffmem.text import cut, cut_end, visible_token

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ffmem.analyses.lookup.measure import LayerLookup
    from ffmem.memories.prompt_answer import LogitTerms, PromptAnswer, PromptRun
    from ffmem.store.scan_store import ScanStore

NEXT_TOKENS = 5  # of each run
CONTROLS = 4  # named beside the edits
MEMORIES, A_LAYER = 12, 3  # memories shown: of all layers, and of each with --layers
BEFORE_MEMORIES = 28  # characters of the table of layers before its memories, but for the tokens
LEGEND = (
    "residual, layer, output = the top token of each (logit lens); made by = whose top token the "
    "output has; active = memories that fire; strongest memories = those that add the longest "
    "vectors, with their coefficients and the tokens that their values promote"
)


@click.command()
@click.argument("model")
@click.argument("text")
@position_option
@click.option(
    "--token",
    help="Explain this next token, a text that is one token; by default the likeliest.",
)
@click.option(
    "--chat", is_flag=True, help="Format TEXT as a user's message in the model's chat template."
)
@click.option("--layers", "by_layer", is_flag=True, help="Show every layer's step (logit lens).")
@click.option(
    "--top",
    type=SOME,
    help=f"Memories shown.  [default: {MEMORIES}; with --layers {A_LAYER} per layer]",
)
@click.option(
    "--write", type=SOME, help="Also print a continuation of so many tokens, of both runs."
)
@click.option(
    "--set",
    "edits",
    multiple=True,
    metavar="EDIT",
    help="Edit a coefficient: L7.1034=0 (ablation), L7.1034=5 or L7.1034*2, at some positions "
    "L7.1034=0@2,5-7; @FILE=0, @FILE=mean or @FILE*2 for a set of memories. Repeatable.",
)
@click.option(
    "--study",
    type=LOCATION,
    help="Scan or study of the model: says what each memory fires after; =mean takes mean "
    "coefficients from it, --picture what keys stand for.",
)
@click.option("--layer", type=SOME, help="Layer that --picture draws, from 1.")
@click.option(
    "--picture",
    type=LOCATION,
    help="Draw one layer as key-value memories (Figure 1) into a .svg or .png file instead.",
)
@json_option
@model_options
def prompt(  # noqa: PLR0913 - one parameter per option
    model: str,
    text: str,
    position: int | None,
    token: str | None,
    chat: bool,
    by_layer: bool,
    top: int | None,
    write: int | None,
    edits: Sequence[str],
    study: Path | None,
    layer: int | None,
    picture: Path | None,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Show what MODEL predicts after TEXT, and which memories (MLP neurons) contribute to it.

    The logit of the likeliest token is split into what every part of the model adds (direct logit
    attribution): for a memory, its coefficient times its value. With --set the prediction is also
    shown under the edit (ablation).

    With --layers a table has a row per layer: the top token (logit lens) of what enters the
    feed-forward layer, of what it adds, and of their sum; which of them determined the output's
    token; how many memories are active; and those that add the longest vectors.

    With --picture one layer is drawn as in the paper's first figure; with --study each key says
    what fires it.

    \b
    Examples:
        ffmem prompt demo "It was later discovered"
        ffmem prompt demo "It was later discovered" --set L12.691=0
        ffmem prompt tiny:opt "the river runs to the sea" --layers
        ffmem prompt demo "It was later discovered" --layer 12 --picture fig.svg
    """
    from ffmem.memories.edits import expand_edits
    from ffmem.memories.prompt_answer import PromptQuestion, prompt_answer

    if (picture is None) != (layer is None):
        raise click.UsageError(
            "--picture draws one layer; give both, as in --layer 12 --picture figure1.svg"
        )
    language_model, known = load_beside(model, options, study)
    a_layer = top or A_LAYER if by_layer or as_json else None
    asked = PromptQuestion(text, position, token, chat, write or 0, a_layer, top or MEMORIES)
    means = None if known is None else known.mean_coefficients
    changes = expand_edits(edits, language_model, means)
    if picture is not None and layer is not None:
        from ffmem.analyses.lookup.measure import layer_lookup  # here: slow to import

        draw(layer_lookup(language_model, asked, layer, known, changes), picture)
        return
    found = prompt_answer(language_model, asked, changes)
    found = found if known is None else _with_notes(found, known)
    if as_json:
        print_json(found)
        return
    console = terminal()
    _print_prediction(console, found, edits)
    if found.plain.explanation is not None:
        print_why(console, found, found.plain.explanation)
    else:
        print_hanging(console, "", f"\n{found.why_not}")
    if write:
        _print_continuations(console, found)
    if by_layer:
        _print_layers(console, found, edits)


def _with_notes(found: PromptAnswer, scan: ScanStore) -> PromptAnswer:
    """The same answer with what a scan says of the memories."""
    from ffmem.annotations.memory_notes import with_term_notes  # here: slow to import

    return with_term_notes(found, scan)


def draw(found: LayerLookup, picture: Path) -> None:
    """Save one layer at one place as a picture."""
    from ffmem.analyses.lookup.charts import lookup_chart
    from ffmem.figures.saving import save_picture

    save_picture(lookup_chart(found), picture)
    say(f"-> {picture}")


def _parts_of(terms: LogitTerms) -> list[tuple[str, float]]:
    """What the parts of the model add to a logit, their sum, and the logit itself."""
    layers = terms.layers
    constant = "biases and norms" if terms.quantity == "logit" else "biases and softmax sums"
    return [
        ("token and position embedding", terms.start),
        ("attention", sum(layer.attention for layer in layers)),
        ("memories", sum(layer.memories for layer in layers)),
        (constant, sum(layer.bias + layer.rest for layer in layers) + terms.constant),
        ("sum", terms.total),
        (f"the model's own {terms.quantity}", terms.logit),
    ]


def _print_prediction(console: Console, found: PromptAnswer, edits: Sequence[str]) -> None:
    """The text that was read and the likeliest next tokens, as it is and with edits."""
    text = "".join(found.tokens[: found.position])
    print_text_read(console, found.model, found.position, text)
    edited = "as it is  with edits" + ("   control" if found.controls else "")
    headings = "next token          " + (edited if found.edited else "probability")
    console.print(f"\n{headings}", style="bold")
    runs = [[one.plain for one in found.chances]]
    if found.edited is not None:
        runs.append([one.edited or 0.0 for one in found.chances])
    least = [sorted(run)[-NEXT_TOKENS:][0] for run in runs]
    if found.controls:
        runs.append([one.control or 0.0 for one in found.chances])
    for one, *chances in zip(found.chances, *runs, strict=True):
        if any(chance >= bar for chance, bar in zip(chances, least, strict=False)):
            numbers = "".join(f"{100 * chance:8.1f} %" for chance in chances)
            console.print(f"  {cut_end(visible_token(one.text), 16):<16} {numbers}")
    if found.moved is not None:
        movement = f"the distribution moves by {found.moved:.4f} nats (KL from as it is)"
        print_hanging(console, "", f"with {', '.join(edits)}: {movement}")
    if found.control_moved is not None:
        print_hanging(console, "", _control_sentence(found))


def _control_sentence(found: PromptAnswer) -> str:
    """Which memories are edited instead, and how far that moves the distribution."""
    names = [
        f"{one.control} for {one.memory} ({100 * one.share:.0f} % as strong here)"
        for one in found.controls[:CONTROLS]
    ]
    if len(found.controls) > CONTROLS:
        names.append(f"{len(found.controls) - CONTROLS} more")
    return (
        f"control, memories of the same layer that promote other tokens, edited alike: "
        f"{', '.join(names)}: {found.control_moved:.4f} nats"
    )


def print_why(console: Console, found: PromptAnswer, terms: LogitTerms) -> None:
    """The sum of a logit, then the memories with the largest terms; each run has a column."""
    runs = [terms]
    if found.edited is not None and found.edited.explanation is not None:
        runs.append(found.edited.explanation)
    name = visible_token(found.token.text)
    console.print(f"\nWhy {name}: what adds to its {terms.quantity}", style="bold")
    if len(runs) > 1:
        console.print(f"  {'':<30}{'as it is':>8}{'with edits':>12}", style="bold")
    lines = [_parts_of(run) for run in runs]
    for parts in zip(*lines, strict=True):
        first, *others = (amount for _, amount in parts)
        numbers = f"{first:+8.2f}" + "".join(f"{amount:+12.2f}" for amount in others)
        console.print(f"  {parts[0][0]:<30}{numbers}")
    _print_memories(console, terms, runs[1:])


def _print_memories(console: Console, terms: LogitTerms, edited: Sequence[LogitTerms]) -> None:
    """Memories with their terms: what each fires after, where a study says it, and promotes."""
    width = max([7, *(len(str(memory.address)) for memory in terms.strongest)])
    noted = any(memory.notes for memory in terms.strongest)
    room = console.width - width - 12 - 12 * len(edited) - (0 if noted else 14)
    fires = room // 2 if noted else 0
    heads = f"{'memory':<{width + 2}}    adds" + "  with edits" * len(edited)
    heads += f"  {'fires after':<{fires}}" if noted else "   coefficient"
    console.print(f"\n{heads}  its value promotes", style="bold")
    for memory in terms.strongest:
        numbers = f"{memory.amount:+8.2f}"
        numbers += "".join(f"{run.terms[str(memory.address)]:+12.2f}" for run in edited)
        after = cut(memory.notes.fires_after if memory.notes else "", fires)
        numbers += f"  {after:<{fires}}" if noted else f"  {memory.coefficient:+12.2f}"
        words = token_words(memory.tokens, room - fires - 2)
        console.print(f"  {memory.address!s:<{width}}{numbers}  {words}", soft_wrap=True)
    rest = "".join(f"{run.others:+12.2f}" for run in edited)
    console.print(f"  {'others':<{width}}{terms.others:+8.2f}{rest}")
    example = terms.strongest[0].address.memory
    after = "--study DIR says what each fires after; " * (not noted)
    note = (
        "adds = coefficient x value, along this token; its value promotes = logit lens, in the "
        f"direction in which it is added; {after}--layers shows each layer, --set {example}=0 "
        "silences a memory"
    )
    console.print()
    print_hanging(console, "", note)


def _print_continuations(console: Console, found: PromptAnswer) -> None:
    """What the model writes after the text, as it is and with edits."""
    from ffmem.memories.prompt_explanation import END

    console.print("\nContinuation", style="bold")
    runs = [("as it is", found.plain), ("with edits", found.edited)]
    for name, run in runs:
        if run is not None:
            print_hanging(console, f"  {name + ':':<12}", run.continuation.strip() or END)


def _print_layers(console: Console, found: PromptAnswer, edits: Sequence[str]) -> None:
    """A table of every layer's step for each run."""
    console.print()
    console.print(steps_table(console, "" if found.edited is None else "as it is", found.plain))
    if found.edited is not None:
        console.print(steps_table(console, f"with {', '.join(edits)}", found.edited))
    print_hanging(console, "", LEGEND)


def steps_table(console: Console, title: str, run: PromptRun) -> Table:
    """Layers as rows: top tokens of residual, layer and output, who made it, strong memories."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    longest = 8 + max(console.width - 80, 0) // 8  # of a token in the first columns
    room = console.width - BEFORE_MEMORIES - 3 * longest
    for name in ("L", "residual", "layer", "output", "made by", "active", "strongest memories"):
        table.add_column(name, no_wrap=True)
    for step in run.steps:
        tokens = (step.residual, step.feedforward, step.output)
        cells = [cut_end(visible_token(token), longest) for token in tokens]
        row = [str(step.layer), *cells, MAKERS[step.winner], str(step.active)]
        heads = [f"{m.address} {m.coefficient:+.2f} " for m in step.strongest]
        lines = [
            head + token_words(m.tokens, room - len(head))
            for head, m in zip(heads, step.strongest, strict=True)
        ]
        table.add_row(*map(Text, [*row, lines[0] if lines else ""]))
        for line in lines[1:]:
            table.add_row(*[""] * len(row), Text(line))
    return table


MAKERS = {
    "residual": "residual",
    "agreement": "both",
    "composition": "composed",
    "ffn": "layer",
}
