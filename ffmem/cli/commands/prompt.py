"""`ffmem prompt MODEL TEXT`: the prediction at one place, and the memories that made it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.options import (
    LOCATION,
    SOME,
    ModelOptions,
    load_model,
    model_options,
    scan_means,
    text_form_option,
)
from ffmem.cli.output import print_hanging, terminal, token_words
from ffmem.errors import ModelError, visible_token

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ffmem.memories.attribution import Contributions, MemoryContribution
    from ffmem.memories.prompt_explanation import PromptExplanation
    from ffmem.models.language_model import LanguageModel

NEXT_TOKENS = 10  # next tokens in the JSON; a terminal shows half of them
MEMORIES, A_LAYER = 12, 3  # memories shown: of all layers, and of each with --layers
VALUE_TOKENS = 8  # tokens of a value, where they fit
BEFORE_MEMORIES = 28  # characters of the table of layers before its memories, but for the tokens
LEGEND = (
    "residual, layer, output = the top token of each (logit lens); made by = whose top token the "
    "output has; active = memories that fire; strongest memories = those that add the longest "
    "vectors, with their coefficients and the tokens that their values promote"
)


@dataclass(frozen=True)
class Why:
    """The logit of one token as a sum, and the tokens that the largest terms' values promote."""

    token: int
    terms: Contributions
    memories: list[tuple[MemoryContribution, tuple[str, ...]]]


@click.command()
@click.argument("model")
@click.argument("text")
@click.option("--position", type=int, help="Tokens read, from 1; negative counts from the end.")
@click.option(
    "--token",
    help="Explain this next token, or the first token of a text; by default the likeliest.",
)
@click.option(
    "--chat", is_flag=True, help="Format TEXT as a user's message in the model's chat template."
)
@text_form_option
@click.option("--layers", "by_layer", is_flag=True, help="Show every layer's step (logit lens).")
@click.option(
    "--top",
    type=SOME,
    help=f"Memories shown.  [default: {MEMORIES}; with --layers {A_LAYER} per layer]",
)
@click.option(
    "--set",
    "edits",
    multiple=True,
    metavar="EDIT",
    help="Edit a coefficient: L7.1034=0 (ablation), L7.1034=5 or L7.1034*2; @FILE=0, @FILE=mean or "
    "@FILE*2 for a set of memories. Repeatable.",
)
@click.option("--scan", type=LOCATION, help="Scan that =mean takes the mean coefficients from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def prompt(  # noqa: PLR0913 - one parameter per option
    model: str,
    text: str,
    position: int | None,
    token: str | None,
    chat: bool,
    no_wikitext_form: bool,
    by_layer: bool,
    top: int | None,
    edits: Sequence[str],
    scan: Path | None,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Show what MODEL predicts after TEXT, and which memories (MLP neurons) contribute to it.

    The logit of the likeliest token is split into what every part of the model adds (direct logit
    attribution): for a memory, its coefficient times its value. The parts sum to the logit, and
    both numbers are printed. With --set the prediction is also shown under the edit (ablation).

    With --layers a table has a row per layer: the top token of what enters the feed-forward layer
    (residual), of what the layer adds, and of their sum (output), each read through the head (logit
    lens); which of them determined the output's token (the residual, the layer, both agree, or
    composition: neither had it first); how many memories are active; and those that add the longest
    vectors.

    \b
    Examples:
        ffmem prompt demo "It was later discovered"
        ffmem prompt demo "It was later discovered" --set L12.691=0
        ffmem prompt tiny:opt "the river runs to the sea" --layers
    """
    from ffmem.corpus.conversations import question_text
    from ffmem.memories.edits import edited, expand_edits
    from ffmem.memories.prompt_explanation import explain_prompt

    language_model = load_model(model, options)
    if no_wikitext_form:
        language_model = language_model.without_wikitext_form()
    if chat:
        text = question_text(text, language_model.tokenizer, language_model.name)
    strongest = top or A_LAYER
    plain = explain_prompt(language_model, text, position, strongest)
    changed = None
    if edits:
        means = None if scan is None else scan_means(scan, language_model, options["dtype"])
        with edited(language_model, expand_edits(edits, language_model, means)):
            changed = explain_prompt(language_model, text, position, strongest)
    chosen = plain.likeliest(1)[0] if token is None else language_model.first_token(token)
    why = explain_token(language_model, plain, chosen, top or MEMORIES)
    if as_json:
        data = as_data(language_model, plain, changed, edits) | {"why": why_data(why)}
        click.echo(json.dumps(data, indent=2))
        return
    console = terminal()
    print_prediction(console, language_model, plain, changed, edits)
    if isinstance(why, Why):
        print_why(console, language_model, why)
    else:
        print_hanging(console, "", f"\n{why}")
    if by_layer:
        print_layers(console, plain, changed, edits)


def explain_token(
    model: LanguageModel, plain: PromptExplanation, token: int, top: int
) -> Why | str:
    """The token's logit as a sum; where it is not one, a sentence why."""
    from ffmem.memories.attribution import contributions
    from ffmem.memories.value_vectors import value_tokens

    try:
        terms = contributions(model, plain.readings, token, top)
    except ModelError as error:
        return str(error)
    memories = [
        (
            memory,
            tuple(
                model.token_text(one)
                for one in value_tokens(model, memory.address, VALUE_TOKENS).tokens[0].tolist()
            ),
        )
        for memory in terms.strongest(top)
    ]
    return Why(token, terms, memories)


def why_data(why: Why | str) -> dict[str, Any]:
    """The sum as plain data, or why there is none."""
    if isinstance(why, str):
        return {"reason": why}
    return {
        "token": why.token,
        "logit": why.terms.logit,
        "sum": why.terms.total,
        "parts": dict(parts_of(why.terms)),
        "memories": [
            {
                "address": str(memory.address),
                "adds": memory.amount,
                "coefficient": memory.coefficient,
                "tokens": tokens,
            }
            for memory, tokens in why.memories
        ],
    }


def parts_of(terms: Contributions) -> list[tuple[str, float]]:
    """What the parts of the model add to a logit, all layers together."""
    layers = terms.layers
    constant = "biases and norms" if terms.quantity == "logit" else "biases and softmax sums"
    return [
        ("token and position embedding", terms.start),
        ("attention", sum(layer.attention for layer in layers)),
        ("memories", sum(layer.memories for layer in layers)),
        (constant, sum(layer.bias + layer.rest for layer in layers) + terms.constant),
    ]


def print_prediction(
    console: Console,
    model: LanguageModel,
    plain: PromptExplanation,
    changed: PromptExplanation | None,
    edits: Sequence[str],
) -> None:
    """The text that was read and the likeliest next tokens, as it is and with edits."""
    from ffmem.store.memory_page import cut_end

    room = console.width - len(model.name) - 30
    shown = visible_end(plain.prefix, max(room, 30))
    plural = "token" if plain.position == 1 else "tokens"
    print_hanging(console, "", f"{model.name} has read {plain.position} {plural}: {shown}")
    views = [plain] if changed is None else [plain, changed]
    headings = "next token          " + ("as it is  with edits" if changed else "probability")
    console.print(f"\n{headings}", style="bold")
    tokens = {token for view in views for token in view.likeliest(NEXT_TOKENS // 2)}
    for token in sorted(tokens, key=lambda one: -max(float(v.distribution[one]) for v in views)):
        chances = "".join(f"{100 * float(view.distribution[token]):8.1f} %" for view in views)
        word = cut_end(visible_token(model.token_text(token)), 16)
        console.print(f"  {word:<16} {chances}")
    if changed is not None:
        moved = changed.divergence_from(plain)
        movement = f"the distribution moves by {moved:.4f} nats (KL from as it is)"
        print_hanging(console, "", f"with {', '.join(edits)}: {movement}")


def visible_end(text: str, width: int) -> str:
    """The end of a text in quotes; dots stand for what is cut off."""
    return repr(text) if len(text) <= width else "…" + repr(text[-width:])


def print_why(console: Console, model: LanguageModel, why: Why) -> None:
    """The sum of a logit, then the memories with the largest terms."""
    name = visible_token(model.token_text(why.token))
    what = why.terms.quantity
    console.print(f"\nWhy {name}: what adds to its {what}", style="bold")
    for part, amount in parts_of(why.terms):
        console.print(f"  {part:<30}{amount:+8.2f}")
    total, logit = why.terms.total, why.terms.logit
    console.print(f"  {'sum':<30}{total:+8.2f}   (the model's own: {logit:+.2f})")
    width = max([7, *(len(str(memory.address)) for memory, _ in why.memories)])
    room = console.width - width - 25
    console.print(
        f"\n{'memory':<{width + 2}}    adds   coefficient  its value promotes", style="bold"
    )
    for memory, tokens in why.memories:
        numbers = f"{memory.amount:+8.2f}  {memory.coefficient:+12.2f}"
        address = f"{memory.address!s:<{width}}"
        console.print(f"  {address}{numbers}  {token_words(tokens, room - 2)}", soft_wrap=True)
    example = why.memories[0][0].address.memory
    note = (
        "adds = coefficient x value, along this token; its value promotes = logit lens; --layers "
        f"shows each layer, --set {example}=0 silences a memory"
    )
    console.print()
    print_hanging(console, "", note)


def print_layers(
    console: Console,
    plain: PromptExplanation,
    changed: PromptExplanation | None,
    edits: Sequence[str],
) -> None:
    """A table of every layer's step for each view."""
    console.print()
    console.print(steps_table(console, "" if changed is None else "as it is", plain))
    if changed is not None:
        console.print(steps_table(console, f"with {', '.join(edits)}", changed))
    print_hanging(console, "", LEGEND)


def as_data(
    model: LanguageModel,
    plain: PromptExplanation,
    changed: PromptExplanation | None,
    edits: Sequence[str],
) -> dict[str, Any]:
    """Both views as plain data; addresses as text."""
    data: dict[str, Any] = {"model": model.name, "plain": view_data(model, plain)}
    if changed is not None:
        moved = changed.divergence_from(plain)
        data |= {"edits": list(edits), "edited": view_data(model, changed), "kl": moved}
    return data


def view_data(model: LanguageModel, seen: PromptExplanation) -> dict[str, Any]:
    """One view as plain data."""
    steps = [asdict(step) for step in seen.steps]
    for row, step in zip(steps, seen.steps, strict=True):
        row["strongest"] = [asdict(m) | {"address": str(m.address)} for m in step.strongest]
    chances = [
        {
            "id": token,
            "token": model.token_text(token),
            "probability": float(seen.distribution[token]),
        }
        for token in seen.likeliest(NEXT_TOKENS)
    ]
    return {
        "position": seen.position,
        "prefix": seen.prefix,
        "next_tokens": chances,
        "steps": steps,
    }


def steps_table(console: Console, title: str, view: PromptExplanation) -> Table:
    """Layers as rows: top tokens of residual, layer and output, who made it, strong memories."""
    from rich.table import Table
    from rich.text import Text

    from ffmem.store.memory_page import cut_end

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
    for step in view.steps:
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
