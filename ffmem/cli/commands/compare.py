"""`ffmem compare DIR1 DIR2 ...`: studies side by side, by claim or memory by memory."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ffmem.address_space import room_for_model
from ffmem.cli.options import json_option
from ffmem.cli.output import print_hanging, print_json, print_parts, say, terminal
from ffmem.cli.parameters import ANY, LOCATION
from ffmem.text import visible_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ffmem.analyses.drift.record import LayerDrift, MemoryComparison, MemoryDrift
    from ffmem.analyses.verdicts import Verdict
    from ffmem.models.language_model import LanguageModel
    from ffmem.report.comparison import Comparison
    from ffmem.store.scan_store import ScanStore

PAGE = "compare.html"  # a name for the page, where none was given


@click.command()
@click.argument("folders", nargs=-1, required=True, type=LOCATION)
@click.option(
    "-o",
    "--out",
    type=LOCATION,
    help="HTML page to write: the claims, and the figures on the same scales; it opens offline.",
)
@click.option(
    "--memories",
    is_flag=True,
    help="Print which memories changed, the largest changes first, instead of the claims.",
)
@click.option(
    "--match",
    is_flag=True,
    help="With --memories: match memories of different models by triggers of the same text.",
)
@click.option(
    "--weights",
    is_flag=True,
    help="With --memories: load both models and compare the directions of keys and values too.",
)
@click.option("--layer", type=ANY, help="With --memories: only those of one layer.")
@click.option("-n", "--count", type=ANY, default=20, show_default=True, help="Memories shown.")
@json_option
def compare(  # noqa: PLR0913 - one parameter per option
    folders: tuple[Path, ...],
    out: Path | None,
    memories: bool,
    match: bool,
    weights: bool,
    layer: int | None,
    count: int,
    as_json: bool,
) -> None:
    r"""Compare two or more studies: models, checkpoints, corpora, controls.

    Prints the same claims with the numbers of each study and marks those that come out
    differently. With --memories two scans are compared memory by memory: for checkpoints of one
    model, which triggers, values and fire rates changed; for different models, which memories are
    triggered by the same places of the text (--match), with shuffled triggers as a control.

    \b
    Examples:
        ffmem analyse out/demo --control random-weights
        ffmem compare out/demo out/demo/control-random-weights
        ffmem compare out/demo out/mine -o compare.html
        ffmem compare out/before out/after --memories
        ffmem compare out/gpt2 out/smollm2 --memories --match --json
    """
    from ffmem.store.scan_store import ScanStore

    stores = [ScanStore.open(folder) for folder in folders]  # a wrong folder is named at once
    if len(stores) < 2:
        raise click.UsageError("a comparison needs two studies; name both folders")
    options = {"--match": match, "--weights": weights, "--layer": layer is not None}
    _check_options(memories, out, [name for name, given in options.items() if given])
    if memories:
        if len(stores) > 2:
            raise click.UsageError("memories are compared between two scans; name two folders")
        found = _memory_rows(stores, (match, weights), layer, count)
        if as_json:
            print_json(found)
        else:
            print_memories(found)
        return
    if out is not None:
        from ffmem.files.whole_files import prepare_target

        prepare_target(out)  # a bad path is refused before anything is printed
    _compare_claims(stores, out, as_json)


def _check_options(memories: bool, out: Path | None, others: Sequence[str]) -> None:
    """Refuse what would be ignored: `others` are options for memories, and a page shows claims."""
    if others and not memories:
        raise click.UsageError(f"{others[0]} is for memories; add --memories")
    if memories and out is not None:
        raise click.UsageError("the page shows claims; leave --out or --memories out")
    if {"--match", "--weights"} <= {*others}:
        raise click.UsageError("--match goes by triggers; leave --weights out")


def _compare_claims(stores: Sequence[ScanStore], out: Path | None, as_json: bool) -> None:
    """Print the claims of some studies; draw the page too where one is asked for."""
    from ffmem.analyses.study import Study
    from ffmem.report.comparison import compare as side_by_side
    from ffmem.report.comparison import summarise, write_comparison

    summaries = [summarise(Study(store), figures=out is not None) for store in stores]
    found = side_by_side([replace(one, figures=()) for one in summaries])
    if as_json:
        print_json(found)
    else:
        print_claims(found)
    if out is not None:
        click.echo(f"-> {write_comparison(summaries, out)}", err=as_json)
    elif not as_json:
        folders = shlex.join(str(store.folder.root) for store in stores)
        say(f"with the figures, as a page: ffmem compare {folders} -o {PAGE}")


def print_claims(found: Comparison) -> None:
    """Each claim with its sign and number in each study; the tallies last."""
    from rich.text import Text

    from ffmem.cli.claims import MARKS

    console = terminal()
    width = max(len(side.label) for side in found.studies)
    different = 0
    for verdicts in found.claims:
        differs = len({verdict.word for verdict in verdicts}) > 1
        different += differs
        print_hanging(console, "≠ " if differs else "  ", _claim_text(verdicts))
        for side, verdict in zip(found.studies, verdicts, strict=True):
            head = Text.assemble("    ", MARKS[verdict.word], f" {side.label:<{width}}  ")
            print_hanging(console, head, number_text(verdict))
    console.print()
    signs = ", ".join(f"{mark} {word}" for word, (mark, _) in MARKS.items())
    print_hanging(
        console, "", f"{signs}; ≠ {different} of {len(found.claims)} come out differently"
    )
    for side in found.studies:
        print_hanging(console, f"{side.label:<{width}}  ", side.tally.text)


def _claim_text(verdicts: Sequence[Verdict]) -> str:
    """A claim, the paper's number, and what the studies' numbers and controls are."""
    from ffmem.cli.claims import NOUNS, paper_text

    first = verdicts[0]
    parts = [f"paper: {paper_text(first)}", NOUNS.get(first.unit, "")]
    against = dict.fromkeys(one.finding.against for one in verdicts if one.finding)
    parts += [f"control: {name}" for name in against if name]
    return f"{first.says} ({'; '.join(filter(None, parts))})"


def number_text(verdict: Verdict) -> str:
    """A study's number of a claim against its control's."""
    from ffmem.analyses.claim import interval_text

    if verdict.finding is None:
        return "not measured"
    number = interval_text(verdict.finding.number, verdict.unit)
    if not verdict.finding.control:
        return number
    control = interval_text(verdict.finding.control, verdict.unit, interval=False)
    return f"{number} vs {control}"


def _memory_rows(
    stores: Sequence[ScanStore], how: tuple[bool, bool], layer: int | None, count: int
) -> MemoryComparison:
    """The memories that moved most, or the best matches."""
    from ffmem.analyses.drift.measure import compare_memories, comparison_rows
    from ffmem.analyses.study import Study
    from ffmem.report.comparison import distinct_labels

    def models() -> tuple[LanguageModel, LanguageModel]:
        room_for_model()
        from ffmem.analyses.inputs.study_inputs import scanned_model  # here: torch imports slowly

        return scanned_model(stores[0]), scanned_model(stores[1])

    (one, other), (match, weights) = stores, how
    found = compare_memories(one, other, match, models if weights else None)
    first, second = distinct_labels([Study(one), Study(other)])
    return comparison_rows(found, (first, second), layer, slice(0, count))


def print_memories(found: MemoryComparison) -> None:
    """The answer for a person."""
    console = terminal()
    if found.share is None or found.bar is None:
        console.print("drift by layer (0 is as it was, 1 is all new):", style="bold")
        for one in found.layers:
            print_parts(console, f"  layer {one.layer:<4} ", distances(one))
        console.print("memories that moved most:", style="bold")
        for row in found.drifts:
            change = f"{words(row.promotes_before)} → {words(row.promotes_after)}"
            often = f"fires {100 * row.rate_before:.2f} % → {100 * row.rate_after:.2f} %"
            much = f"mean {row.mean_before:.3f} → {row.mean_after:.3f}"
            print_parts(console, f"  {row.address:<10} ", [*distances(row), often, much, change])
        return
    print_hanging(
        console,
        "",
        f"{100 * found.share:.1f} % of the memories have a match above {found.bar:.3f}, which "
        "95 % of the control's stay below",
    )
    for pair in found.matches:
        both = [] if pair.mutual else ["(not mutual)"]
        numbers = f"{pair.match:<10} {pair.score:.3f} (control {pair.control:.3f})"
        tokens = f"{words(pair.promotes)} | {words(pair.match_promotes)}"
        print_parts(console, f"  {pair.address:<10} ", [numbers, tokens, *both])


def distances(one: LayerDrift | MemoryDrift) -> list[str]:
    """The distances of a cell or of a layer's mean."""
    key = [] if one.key is None else [f"key {one.key:.3f}"]
    triggers = "  –  " if one.triggers is None else f"{one.triggers:.3f}"
    rest = [f"triggers {triggers}", f"value {one.value:.3f}", f"fires {one.fires:.3f}"]
    return [f"drift {one.drift:.3f}", *key, *rest, f"strength {one.strength:.3f}"]


def words(tokens: Sequence[str]) -> str:
    """Some tokens in a line."""
    return " ".join(visible_token(text) for text in tokens[:3])
