"""`ffmem why MODEL TEXT`: the memories that make a token, predicted and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from ffmem.cli.options import ModelOptions, json_option, load_model, model_options, position_option
from ffmem.cli.output import print_hanging, print_json, print_text_read, say, terminal, token_words
from ffmem.cli.parameters import LOCATION, SOME
from ffmem.cli.progress import step_line
from ffmem.cli.study_access import load_beside
from ffmem.errors import CorpusError
from ffmem.files.whole_files import write_text
from ffmem.locations import file_text
from ffmem.records import json_text
from ffmem.text import cut_end, duration_text, size_text, visible_token

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from ffmem.memories.why.answer import Method
    from ffmem.memories.why.record import (
        Effect,
        Facts,
        LayerEffects,
        LinearReading,
        MemoryEffect,
        Why,
    )
    from ffmem.memories.why.silencing import Plan
    from ffmem.models.language_model import LanguageModel

PAIRS, MEMORIES = 20, 8  # lines in a terminal; the JSON has all
NOTES = 2  # patterns and triggers of a memory
TOKEN = 11  # characters of the token at a place
CELL = 3  # characters of a place in the heat map, at least
NAMES = {"gradient": "predict", "linear": " linear"}  # of the column of predicted effects


@click.command()
@click.argument("model")
@click.argument("text", required=False)
@click.option("--token", help="Explain this next token; by default the likeliest.")
@click.option("--against", help="Explain how far the logit is above that of this token.")
@position_option
@click.option(
    "--top",
    type=SOME,
    help="Pairs of memory and place that are silenced, and as many random ones; with --prompts the "
    "memories of each prompt.  [default: 40; with --prompts 20]",
)
@click.option(
    "--against-text",
    help="Do not silence a coefficient: put in that of this text, of as many tokens.",
)
@click.option(
    "--method",
    type=click.Choice(["gradient", "linear"]),
    default="gradient",
    show_default=True,
    help="How effects are predicted. linear freezes norms, attention patterns and activations, so "
    "that all parts add up to the logit; it refuses a model in which they do not.",
)
@click.option(
    "--edges", is_flag=True, help="Also show which earlier memories wake the strongest ones."
)
@click.option(
    "--prompts",
    type=LOCATION,
    help="Instead of TEXT: the memories that matter in most prompts of this file, one a line.",
)
@click.option(
    "--study", type=LOCATION, help="Scan or study that knows the memories' patterns and triggers."
)
@click.option(
    "--save",
    type=LOCATION,
    metavar="FOLDER",
    help="Write the answer (JSON), the heat map and the graph of --edges (SVG, HTML, PNG) there.",
)
@json_option
@model_options
def why(  # noqa: PLR0913 - one parameter per option
    model: str,
    text: str | None,
    token: str | None,
    against: str | None,
    position: int | None,
    top: int | None,
    against_text: str | None,
    method: Method,
    edges: bool,
    prompts: Path | None,
    study: Path | None,
    save: Path | None,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    r"""Show which memories (MLP neurons) make MODEL predict a token after TEXT, in truth.

    Two passes predict what every memory adds to the token's logit at every place, through later
    layers too (gradient x coefficient, attribution patching). The strongest pairs of memory and
    place are then silenced one by one (ablation); their true effects are printed beside the
    predicted and the direct ones, with the correlation for this text.

    \b
    Examples:
        ffmem why demo "It was later discovered"
        ffmem why demo "It was later discovered" --against " in"
    """
    if (text is None) == (prompts is None):
        raise click.UsageError("give a TEXT, or a file of several with --prompts")
    if prompts is not None:
        others = (against, position, against_text, study, save)
        if edges or method != "gradient" or any(one is not None for one in others):
            raise click.UsageError("--prompts goes with --token, --top and --json only")
        _answer_prompts(load_model(model, options), prompts, token, top, as_json)
        return
    from ffmem.memories.why.answer import TOP
    from ffmem.memories.why.answer import why as explain

    language_model, store = load_beside(model, options, study)
    with step_line():
        found = explain(
            language_model,
            text or "",
            token,
            against,
            position,
            top or TOP,
            against_text,
            method,
            edges,
            on_plan=_say_plan,
        )
    if store is not None:
        from ffmem.annotations.memory_notes import with_notes

        found = with_notes(found, store)
    if as_json:
        print_json(found)
    else:
        print_why(terminal(), found)
    if save is not None:
        save_answer(found, save)


def _answer_prompts(
    model: LanguageModel, file: Path, token: str | None, top: int | None, as_json: bool
) -> None:
    """The memories that several prompts share."""
    from ffmem.memories.why.several import TOP, facts

    lines = file_text(file, f"the prompts {file}", CorpusError).splitlines()
    with step_line():
        found = facts(
            model, [line for line in lines if line.strip()], token, top or TOP, on_plan=_say_plan
        )
    if as_json:
        print_json(found)
    else:
        _print_facts(terminal(), found)


def save_answer(found: Why, folder: Path) -> None:
    """Write the answer and its figures."""
    from ffmem.figures.saving import save
    from ffmem.figures.why import edge_graph, heat_map

    write_text(folder / "why.json", json_text(found))
    save(heat_map(found), folder, "why-heat-map")
    if found.edges:
        save(edge_graph(found), folder, "why-edges")
    say(f"-> {folder}", err=True)


def _say_plan(plan: Plan) -> None:
    """What is about to be measured, and how long it takes at most."""
    say(
        f"{plan.copies} copies of {plan.tokens} tokens, {min(plan.batch, plan.copies)} at a time: "
        f"at most about {duration_text(max(plan.seconds, 1))} and {size_text(plan.bytes)}",
        err=True,
    )


def print_why(console: Console, found: Why) -> None:
    """Pairs, memories, joint effect, the heat map, and how far to believe it."""
    print_text_read(console, found.model, found.position, found.text)
    against = f" above {visible_token(found.against)}" if found.against else ""
    quantity = "difference of logits" if found.against else "logit"
    console.print(
        f"\nWhy {visible_token(found.token)}{against}: {quantity} {found.target:+.2f}", style="bold"
    )
    _print_pairs(console, found.effects, NAMES[found.method])
    print_memories(console, found)
    _print_edges(console, found)
    _print_heat(console, found.layers)
    if found.linear is not None:
        _print_linear(console, found.linear, found.target)
    console.print("\nHow far to believe it", style="bold")
    for sentence in trust(found):
        print_hanging(console, "  ", sentence)
    print_hanging(console, "\n", legend(found))


def _print_pairs(console: Console, effects: Sequence[Effect], name: str) -> None:
    """A line for each of the strongest pairs."""
    width = max(len("memory"), *(len(str(one.address)) for one in effects[:PAIRS]))
    place = len(str(max(one.place for one in effects)))
    room = console.width - width - place - TOKEN - 33
    head = f"  {'memory':<{width}}  {'at':>{place}} {'':<{TOKEN}}  direct  {name}     true  "
    console.print(f"{head}value promotes", style="bold")
    for one in effects[:PAIRS]:
        token = cut_end(visible_token(one.token), TOKEN)
        console.print(
            f"  {one.address!s:<{width}}  {one.place:>{place}} {token:<{TOKEN}}"
            f"{number(one.direct, 8)} {number(one.predicted, 8)} {number(one.true, 8)}  "
            f"{token_words(one.promotes, room)}",
            soft_wrap=True,
        )
    if len(effects) > PAIRS:
        console.print(f"  and {len(effects) - PAIRS} weaker ones; --json has all")


def number(value: float, width: int) -> str:
    """A signed number, or a dash where it is not known."""
    return f"{value:+{width}.3f}" if value == value else f"{'-':>{width}}"


def print_memories(console: Console, found: Why) -> None:
    """Each memory at all places together, then all pairs together."""
    several = [one for one in found.memories if one.places > 1][:MEMORIES]
    if several:
        width = max(len("at all its places"), *(len(str(one.address)) for one in several))
        head = f"\n  {'at all its places':<{width}}  places  {NAMES[found.method]}     true"
        console.print(head, style="bold")
    for one in several:
        console.print(
            f"  {one.address!s:<{width}}  {one.places:>6} {number(one.predicted, 8)} "
            f"{number(one.true, 8)}"
        )
    for one in found.memories[:MEMORIES]:
        _print_notes(console, one)
    console.print(
        f"\n  all {len(found.effects)} pairs together {found.joint:+.2f}; "
        f"the sum of the single ones {found.sum:+.2f}"
    )


def _print_notes(console: Console, one: MemoryEffect) -> None:
    """What a study knows of a memory."""
    if one.notes is None:
        return
    label = f" {one.notes.label}" if one.notes.label else ""
    console.print(f"\n  {one.address}{label}", style="bold")
    for pattern in one.notes.patterns[:NOTES]:
        print_hanging(console, "    pattern  ", pattern)
    for trigger in one.notes.triggers[:NOTES]:
        print_hanging(console, "    trigger  ", trigger)


def _print_edges(console: Console, found: Why) -> None:
    """Which earlier memories wake the strongest ones: the score of a key without them."""
    if not found.edges:
        return
    ends = [
        (f"{one.source} at {one.source_place}", f"{one.target} at {one.target_place}")
        for one in found.edges
    ]
    wide, name = max(len(end) for end, _ in ends), NAMES["gradient"]
    width = max(len(end) for _, end in ends)
    console.print(f"\n  {'memory':<{wide}}    {'wakes':<{width}}  {name}     true", style="bold")
    for (source, target), one in zip(ends, found.edges, strict=True):
        console.print(
            f"  {source:<{wide}} -> {target:<{width}} {number(one.predicted, 8)} "
            f"{number(one.true, 8)}"
        )


def _print_facts(console: Console, found: Facts) -> None:
    """The memories that matter in most prompts, each beside its control."""
    count = len(found.prompts)
    head = f"Memories among the strongest in at least {found.needed} of {count} prompts"
    console.print(head, style="bold")
    targets = "  ".join(dict.fromkeys(map(visible_token, found.tokens)))
    print_hanging(console, "  ", f"explained tokens: {targets}")
    if not found.memories:
        print_hanging(console, "  ", "there is none; choose a larger --top, or like prompts")
        return
    wide = max(6, *(len(str(one.address)) for one in found.memories))
    width = max(7, *(len(str(one.control)) for one in found.memories))
    room = console.width - wide - width - 34
    console.print(
        f"\n  {'memory':<{wide}}  prompts     true  {'control':<{width}}     true  value promotes",
        style="bold",
    )
    for one in found.memories:
        console.print(
            f"  {one.address!s:<{wide}}  {one.prompts:>7} {number(one.effect, 8)}  "
            f"{one.control!s:<{width}} {number(one.control_effect, 8)}  "
            f"{token_words(one.promotes, room)}",
            soft_wrap=True,
        )
    console.print(f"\n  all together {found.joint:+.2f}; their controls {found.control_joint:+.2f}")
    print_hanging(
        console,
        "\n",
        "true = the logit minus that with the memory silenced at every place, the mean over all "
        "prompts; a control is a memory of the same layer that is as strong in these prompts",
    )


def _print_heat(console: Console, layers: Sequence[LayerEffects]) -> None:
    """Sums of predicted effects by layer and place, in tenths of the largest."""
    places = len(layers[0].predicted)
    cell = max(CELL, len(str(places)) + 1)
    first = max(0, places - (console.width - 6) // cell)
    cells = [value for layer in layers for value in layer.predicted[first:]]
    largest = max(map(abs, cells)) or 1.0
    shown = f"the last {places - first} places" if first else "place"
    console.print(f"\nPredicted, by layer and {shown} (9 = {largest:.2f})", style="bold")
    for layer in reversed(layers):
        row = "".join(f"{_tenths(value / largest):>{cell}}" for value in layer.predicted[first:])
        console.print(f"  {f'L{layer.layer}':<4}{row}".rstrip())
    header = "".join(f"{place + 1:>{cell}}" for place in range(first, places))
    console.print(f"      {header}", style="dim")


def _tenths(share: float) -> str:
    """A share of the largest as a sign and a digit."""
    tenths = round(9 * share)
    return f"{tenths:+d}" if tenths else "·"


def _print_linear(console: Console, reading: LinearReading, target: float) -> None:
    """The identities of the linear reading."""
    covered = ", ".join(f"{count} of {count} {kind}" for kind, count in reading.covered.items())
    console.print("\nThe linear reading adds up", style="bold")
    print_hanging(
        console,
        "  ",
        f"embedding {reading.embedding:+.3f}, biases {reading.biases:+.3f}, constant "
        f"{reading.constant:+.3f}: {reading.total:+.3f} (the model's own: {target:+.3f}). The "
        f"forward pass is the same to the last bit. Frozen: {covered}.",
    )


def trust(found: Why) -> list[str]:
    """Sentences on how well predicted effects agree with true ones here."""
    missed = found.missed
    sentences = [
        f"Predicted and true effects of the list correlate {_correlation_text(found.agreement)}, "
        f"direct and true ones {_correlation_text(found.direct_agreement)}."
    ]
    if missed.largest is not None:
        sentences.append(
            f"Of {missed.pairs:,} pairs below the list {missed.sampled} were silenced at random: "
            f"the largest true effect is {missed.largest.true:+.3f} ({missed.largest.address}), "
            f"and {missed.above} exceed the smallest of the list; with 95 % confidence at most "
            f"{100 * missed.bound:.0f} % of those pairs do."
        )
    return sentences


def _correlation_text(correlation: float) -> str:
    """A correlation, or that there is none."""
    return f"{correlation:.2f}" if correlation == correlation else "(too few numbers)"


def legend(found: Why) -> str:
    """What the columns mean."""
    done = "with the other text's coefficient" if found.other_text else "with coefficient 0"
    means = "predict = coefficient x gradient"
    if found.linear is not None:
        means = "linear = the same with norms, attention patterns and activations frozen"
    return (
        f"direct = coefficient x value, along the token; {means}; "
        f"true = the logit minus that of a pass {done} at this place"
    )
