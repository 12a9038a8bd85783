"""Changes of the last layer to be judged by people: pairs of tokens, real and shuffled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ffmem.analyses.last_layer import Case, LastLayer

Judgement = Literal["related", "distant"]
RULES = "rules"  # who the rule's judgements are saved as
ON_A_SHEET = 25


@dataclass(frozen=True)
class CaseLine:
    """One change as it is shown; `control` is not: then `old` is another case's."""

    prefix: str
    old: str  # the residual's token
    layer: str  # what the layer alone says
    new: str  # the output
    gold: str | None  # how the text goes on
    control: bool


@dataclass(frozen=True)
class CaseSheet:
    """Some cases, controls among them, under a name that is a digest of them."""

    name: str
    scan: str  # digest of the scan they were drawn from
    cases: tuple[CaseLine, ...]


@dataclass(frozen=True)
class CaseAnswer:
    """What one annotator last said of a sheet of cases, one judgement each."""

    sheet: CaseSheet
    annotator: str
    judged: tuple[Judgement, ...]


def draw_case_sheets(
    found: LastLayer, scan: str, controls: int | None = None
) -> list[tuple[CaseSheet, tuple[Judgement, ...]]]:
    """Sheets of all cases and of some controls, mixed, each with the rule's judgements.

    The order is that of a digest of each case, so it tells nothing and is always the same.
    """
    pairs = [(_case_line(case, False), _judgement(case)) for case in found.cases]
    pairs += [(_case_line(case, True), _judgement(case)) for case in found.controls[:controls]]
    pairs.sort(key=lambda pair: _digest(scan, pair[0].prefix, pair[0].old, pair[0].new))
    sheets = []
    for start in range(0, len(pairs), ON_A_SHEET):
        shown, judged = zip(*pairs[start : start + ON_A_SHEET], strict=True)
        texts = [text for case in shown for text in (case.prefix, case.old, case.new)]
        sheets.append((CaseSheet(_digest(scan, *texts), scan, shown), judged))
    return sheets


def judgements_by_case(judgings: Sequence[CaseAnswer]) -> dict[CaseLine, dict[str, Judgement]]:
    """Everybody's judgement of every case."""
    found: dict[CaseLine, dict[str, Judgement]] = {}
    for judging in judgings:
        for case, judgement in zip(judging.sheet.cases, judging.judged, strict=True):
            found.setdefault(case, {})[judging.annotator] = judgement
    return found


def _case_line(case: Case, control: bool) -> CaseLine:
    return CaseLine(case.prefix, case.residual, case.feedforward, case.output, case.gold, control)


def _judgement(case: Case) -> Judgement:
    return "related" if case.related else "distant"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
