"""What annotators said, on the terminal: how far they agree, and what their patterns predict."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

import click

from ffmem.cli.output import interval_words, say

if TYPE_CHECKING:
    from ffmem.analyses.patterns.record import HeldOutScore
    from ffmem.analyses.statistics import Interval
    from ffmem.annotations.agreement import Agreement, CaseAgreement


def print_agreement(result: Agreement, count: int) -> None:
    """Pairs, alpha, false patterns, and who disagrees where."""
    for pair in result.pairs:
        say(
            f"{pair.one} and {pair.other}: kappa {pair.kappa:.2f}, same label on "
            f"{100 * pair.same:.0f} % of {pair.prefixes:,} prefixes ({pair.keys} keys)"
        )
    if result.prefixes:
        say(f"Krippendorff's alpha {result.alpha:.2f} over {result.prefixes:,} prefixes")
    else:
        say("no key has been annotated by two; give the same sheets to a second person")
    for person, rate in result.false_patterns.items():
        say(
            f"{person}: a pattern on {100 * rate.estimate:.0f} % of {rate.n} control keys "
            f"({100 * rate.low:.0f} .. {100 * rate.high:.0f})"
            if rate.n
            else f"{person}: no control key annotated"
        )
    for each in result.disagreements[:count]:
        labels = ", ".join(f"{who}: {label}" for who, label in each.labels.items())
        say(f"  sheet {each.sheet} ({each.key}) prefix {each.rank}: {labels}")
    if len(result.disagreements) > count:
        say(f"  ... and {len(result.disagreements) - count} more")


def print_cases(result: CaseAgreement, count: int) -> None:
    """Shares, agreement, and who disagrees where."""
    say("changes of the last layer, judged related (the paper's judges: 34 of 100)")
    for share in result.shares:
        say(
            f"  {share.annotator}: {_share(share.related)} cases, {_share(share.controls)} controls"
        )
    for pair in result.pairs:
        say(
            f"{pair.one} and {pair.other}: kappa {pair.kappa:.2f}, the same on "
            f"{100 * pair.same:.0f} % of {pair.cases} cases"
        )
    if not result.pairs:
        say("no case has been judged by two; give the same sheets to a second person")
    for case, judgements in result.disagreements[:count]:
        labels = ", ".join(f"{who}: {judgement}" for who, judgement in judgements.items())
        say(f"  {case.old.strip()!r} -> {case.new.strip()!r}: {labels}")
    if len(result.disagreements) > count:
        say(f"  ... and {len(result.disagreements) - count} more")


def _share(found: Interval) -> str:
    if not found.n:
        return "none of 0"
    return (
        f"{100 * found.estimate:.0f} % ({100 * found.low:.0f} .. {100 * found.high:.0f}) "
        f"of {found.n}"
    )


def print_held_out(rows: Sequence[HeldOutScore]) -> None:
    """How well patterns tell a key's other triggers from prefixes that are none."""
    click.echo("held out (ranks 26-50):     patterns  precision  recall  AUC")
    for row in rows:
        click.echo(
            f"  {row.on:<9}{row.kind:<9} v. {row.against:<7}{row.patterns:7}  "
            f"{'–' if isnan(row.precision) else f'{row.precision:.2f}':>9}  {row.recall:6.2f}  "
            + interval_words(f"{row.auc.estimate:.2f}", row.auc.low, row.auc.high, 2)
        )
    if not rows:
        click.echo("  no pattern on a key with triggers beyond those shown")
