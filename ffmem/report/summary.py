"""The first two pages of a report: a row for each question of the paper, and what stays open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ffmem.analyses.catalogue import ANALYSES, results_with_judgements
from ffmem.analyses.claim import AnyClaim, interval_text
from ffmem.analyses.statistics import Interval
from ffmem.analyses.study import Study
from ffmem.analyses.verdicts import Verdict, findings_beside

LINE = (96, 22)  # pixels: of the small line over the layers


@dataclass(frozen=True)
class Control:
    """What a number is compared with, and its number there."""

    name: str
    number: Interval


@dataclass(frozen=True)
class Row:
    """One question of the paper: the claim that answers it, its controls, its line over layers."""

    asks: str
    chapter: str
    verdict: Verdict
    controls: tuple[Control, ...]
    by_layer: tuple[float, ...]

    @property
    def control_ends(self) -> list[int]:
        """The places of the lowest and the highest of the controls; of the only one, or none."""
        by_size = sorted(
            range(len(self.controls)), key=lambda at: self.controls[at].number.estimate
        )
        return list(dict.fromkeys([*by_size[:1], *by_size[-1:]]))

    @property
    def line(self) -> str:
        """The points of the small line, from the left; nothing where it has too few."""
        values, (width, height) = self.by_layer, LINE
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return ""
        low, high = min(0.0, *values), max(0.0, *values)
        step, scale = (width - 4) / (len(values) - 1), (height - 4) / (high - low or 1.0)
        points = ((2 + step * x, height - 2 - scale * (y - low)) for x, y in enumerate(values))
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

    @property
    def line_text(self) -> str:
        """The ends of the line in words."""
        first, last = (
            interval_text(Interval(value, value, value, 0), self.verdict.unit, False)
            for value in (self.by_layer[0], self.by_layer[-1])
        )
        return f"layer by layer, from {first} to {last}"


def rows_of(study: Study, verdicts: Sequence[Verdict]) -> tuple[Row, ...]:
    """The table of the first page: the questions that this study measured."""
    results = results_with_judgements(study)
    by_name = {verdict.name: verdict for verdict in verdicts}
    return tuple(
        Row(
            question.asks,
            row.chapter,
            by_name[question.claim.name],
            controls_of(by_name[question.claim.name], question.claim, study),
            tuple(question.by_layer(results[row.name])) if question.by_layer else (),
        )
        for row in ANALYSES.values()
        for question in row.questions
        if row.name in results
    )


def controls_of(verdict: Verdict, claim: AnyClaim, study: Study) -> tuple[Control, ...]:
    """The claim's own control, and its numbers without what was learned.

    Those are what the same judge said of permuted weights, or else the numbers in the controls.
    """
    own = verdict.finding
    found = [] if own is None or own.control is None else [Control(own.against, own.control)]
    if own is not None and own.same_judge is not None:
        found.append(Control("permuted weights", own.same_judge.number))
    else:
        beside = findings_beside(claim, own, study.controls)
        found += [Control(kind, one.number) for kind, each in beside.items() for one in each]
    return tuple(one for one in found if not math.isnan(one.number.estimate))


def undecided_claims(verdicts: Sequence[Verdict]) -> Mapping[str, list[Verdict]]:
    """The undecided claims of the paper, by what would decide them."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.source == "paper" and verdict.word == "undecided":
            need = verdict.reason if verdict.need is None else verdict.need.text
            found.setdefault(need, []).append(verdict)
    return found
