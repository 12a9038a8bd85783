"""`ffmem prompt MODEL TEXT`: the prediction at one place, layer by layer (logit lens)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from ffmem.cli.options import LOCATION, SOME, ModelOptions, load_model, model_options

if TYPE_CHECKING:
    from rich.table import Table

    from ffmem.memories.prompt_explanation import PromptExplanation
    from ffmem.models.language_model import LanguageModel


LISTED = 10  # next tokens shown


@click.command()
@click.argument("model")
@click.argument("text")
@click.option("--position", type=int, help="Tokens read, from 1; negative counts from the end.")
@click.option(
    "--top", type=SOME, default=3, show_default=True, help="Memories and tokens shown per layer."
)
@click.option(
    "--set",
    "edits",
    multiple=True,
    metavar="EDIT",
    help="Edit a coefficient: L7.1034=0 (ablation), L7.1034=5 or L7.1034*2; @FILE=0, @FILE=mean or "
    "@FILE*2 for a set of memories. Repeatable.",
)
@click.option("--scan", type=LOCATION, help="Scan whose mean coefficients =mean takes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
@model_options
def prompt(  # noqa: PLR0913 - one parameter an option
    model: str,
    text: str,
    position: int | None,
    top: int,
    edits: Sequence[str],
    scan: Path | None,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Show, layer by layer, what MODEL predicts after TEXT and which memories are strong.

    Top tokens of residual, layer and output are read through the head (logit lens). With --set the
    same is shown under the edit (ablation), with the change of the next-token distribution. Direct
    logit attribution is on the Prompt page of `ffmem explore` and in Python `ffmem.contributions`.

    \b
    Example:
        ffmem prompt tiny:opt "the river runs to the sea" --set L2.7=0
    """
    from ffmem.memories.edits import edited
    from ffmem.memories.memory_sets import expand_edits
    from ffmem.memories.prompt_explanation import explain_prompt
    from ffmem.store.scan_store import ScanStore

    language_model = load_model(model, options)
    plain = explain_prompt(language_model, text, position, top)
    changed = None
    if edits:
        means = None if scan is None else ScanStore.open(scan).mean_coefficients
        with edited(language_model, expand_edits(edits, language_model, means)):
            changed = explain_prompt(language_model, text, position, top)
    if as_json:
        click.echo(json.dumps(as_data(language_model, plain, changed, edits), indent=2))
    else:
        show(language_model, plain, changed, edits)


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
        for token in seen.likeliest(LISTED)
    ]
    return {
        "position": seen.position,
        "prefix": seen.prefix,
        "next_tokens": chances,
        "steps": steps,
    }


def show(
    model: LanguageModel,
    plain: PromptExplanation,
    changed: PromptExplanation | None,
    edits: Sequence[str],
) -> None:
    """Print one table per view and, with edits, the change of the distribution."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(Text(f"{model.name}, position {plain.position}: ...{plain.prefix[-70:]!r}"))
    console.print(steps_table("as it is", plain))
    if changed is not None:
        console.print(steps_table(f"with {', '.join(edits)}", changed))
    console.print(distribution_table(model, plain, changed))
    if changed is not None:
        moved = changed.divergence_from(plain)
        console.print(f"The edit moves the distribution by {moved:.4f} nats (KL from as it is).")


def steps_table(title: str, seen: PromptExplanation) -> Table:
    """Layers as rows: top tokens of residual, layer and output, winner, strong memories."""
    from rich.table import Table
    from rich.text import Text

    table = Table("L", "residual", "layer", "output", "winner", "active", "strongest", title=title)
    for step in seen.steps:
        strongest = "\n".join(
            f"{m.address} {m.coefficient:+.2f} {' '.join(map(visible_token, m.tokens))}"
            for m in step.strongest
        )
        cells = [
            visible_token(step.residual),
            visible_token(step.feedforward),
            visible_token(step.output),
            step.winner,
        ]
        row = [str(step.layer), *cells, str(step.active), strongest]
        table.add_row(*(Text(cell) for cell in row))
    return table


def distribution_table(
    model: LanguageModel, plain: PromptExplanation, changed: PromptExplanation | None
) -> Table:
    """The most likely next tokens, before and, with edits, after."""
    from rich.table import Table
    from rich.text import Text

    views = [plain] if changed is None else [plain, changed]
    headers = ["probability"] if changed is None else ["as it is", "edited"]
    table = Table("next token", *headers)
    tokens = {token for seen in views for token in seen.likeliest(LISTED)}
    for token in sorted(tokens, key=lambda t: -max(float(v.distribution[t]) for v in views)):
        chances = [f"{seen.distribution[token]:.4f}" for seen in views]
        table.add_row(Text(visible_token(model.token_text(token))), *chances)
    return table


def visible_token(token: str) -> str:
    """A token with its spaces and control characters visible."""
    return repr(token)[1:-1].replace(" ", "·") or "∅"
