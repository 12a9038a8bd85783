"""Claims on the terminal: the tally, then a line for each that is decided, or all in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click
from rich.console import Console
from rich.text import Text

from ffmem.analyses.claim import Unit, interval_text
from ffmem.analyses.open_claims.need import ways_to_decide
from ffmem.analyses.statistics import Interval
from ffmem.analyses.verdicts import SIGNS, Outcome, Verdict, tally
from ffmem.cli.output import print_hanging
from ffmem.text import cut_end

COLOURS: dict[Outcome, str] = {
    "holds": "green",
    "also without training": "yellow",
    "does not hold": "red",
    "undecided": "dim",
}
MARKS = {word: (sign, COLOURS[word]) for word, sign in SIGNS.items()}
DECIDED = ("holds", "does not hold")
NOUNS = {"rank": "median rank, % of the vocabulary", "change": "change"}  # by unit of the number


def print_verdicts(console: Console, verdicts: Sequence[Verdict], every: bool = False) -> None:
    """The tally, then a line for each claim that holds or does not, and what would decide others.

    With `every` all in full.
    """
    print_hanging(console, "", tally(verdicts).text)
    console.print()
    if every:
        for verdict in verdicts:
            mark, colour = MARKS[verdict.word]
            print_hanging(console, f"{mark} ", verdict.says)
            print_hanging(console, "  ", _numbers_text(verdict, colour))
    else:
        decided = [verdict for verdict in verdicts if verdict.word in DECIDED]
        width = max((len(verdict.name) for verdict in decided), default=0)
        if decided:
            console.print(f"  {'claim':<{width}}  {'here':>7}  {'control':>7}", style="dim")
        for verdict in decided:
            console.print(_claim_line(verdict, width, console.width), soft_wrap=True)
        _print_needs(console, verdicts)
    if verdicts:
        console.print()
        print_hanging(console, "", _marks_text(len(verdicts), every))


def _print_needs(console: Console, verdicts: Sequence[Verdict]) -> None:
    """What would decide each undecided claim that was measured, and how it gets that."""
    wanting = [
        (one, one.need) for one in verdicts if one.need is not None and one.need.kind != "analysis"
    ]
    for one, need in wanting:
        print_hanging(console, f"{SIGNS['undecided']} ", f"{one.name}: {need.text}")
    for way in ways_to_decide([one for one, _ in wanting]):
        print_hanging(console, "  ", way, "dim")


def _claim_line(verdict: Verdict, width: int, room: int) -> Text:
    """A claim by name with its number and its control's, in one line."""
    found, unit = verdict.finding, verdict.unit
    line = Text.assemble(MARKS[verdict.word], f" {verdict.name:<{width}}")
    if found is not None:
        line.append(f"  {_short_text(found.number, unit):>7}")
        if found.control is not None:
            line.append(f"  {_short_text(found.control, unit):>7}  {found.against}", style="dim")
    line.plain = cut_end(line.plain, room)
    return line


def _short_text(number: Interval, unit: Unit) -> str:
    return interval_text(number, unit, interval=False)


def _marks_text(claims: int, every: bool) -> str:
    """What the signs before the claims mean, and where the rest is."""
    signs = f"{SIGNS['holds']} holds, {SIGNS['does not hold']} does not hold"
    others = (
        f"{SIGNS['also without training']} so it is in an untrained model as well, "
        f"{SIGNS['undecided']} undecided"
    )
    if every:
        return f"{signs}, {others}"
    return f"{signs}; all {claims}, with intervals and reasons: --claims"


def _numbers_text(verdict: Verdict, colour: str) -> Text:
    """A verdict with its reason, the deciding number and its name, the control, the paper's."""
    word = f"{verdict.word} ({verdict.reason})" if verdict.reason else verdict.word
    if verdict.need is not None:
        word += f"; {verdict.need.sentence}"
    parts = [f"paper: {paper_text(verdict)}"]
    if verdict.finding is not None:
        number = interval_text(verdict.finding.number, verdict.unit)
        parts.insert(0, f"{number} {NOUNS.get(verdict.unit, '')}".rstrip())
        if verdict.finding.control:
            control = _short_text(verdict.finding.control, verdict.unit)
            parts.insert(1, f"control: {control} {verdict.finding.against}")
    return Text(word, style=colour).append("  " + "; ".join(parts), style="default")


def paper_text(verdict: Verdict) -> str:
    """The paper's finding, or the origin of a claim that is not the paper's."""
    names_source = verdict.source == "paper" or verdict.source in verdict.paper
    return verdict.paper if names_source else f"{verdict.paper} ({verdict.source})"


def parse_condition(text: str) -> tuple[str, Outcome]:
    """Read `CLAIM=does-not-hold`."""
    from ffmem.analyses.catalogue import CLAIMS

    name, _, word = text.partition("=")
    outcomes: dict[str, Outcome] = {one.replace(" ", "-"): one for one in get_args(Outcome)}
    if word not in outcomes:
        raise click.UsageError(
            f"--fail-if {text!r}: write CLAIM=OUTCOME, with one of {', '.join(outcomes)}"
        )
    names = [claim.name for claim in CLAIMS]
    if name not in names:
        raise click.UsageError(f"there is no claim {name!r}; choose among {', '.join(names)}")
    return name, outcomes[word]
