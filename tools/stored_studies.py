"""Studies as docs/reference/data/results.jsonl has them, judged by the present rules.

A line of the file is a study: the commit that measured it and, for each claim, its number and the
verdict of the rules of that day.

A line with `controls` is of a study that was measured by older rules, and is judged again: `found`
has the bar and interval of every effect that decides, `untrained` the same of the same model with
random weights, and `control` its number. `controls` are the studies whose models with random
weights it is compared with; there are none with permuted weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffmem.analyses.catalogue import CLAIMS
from ffmem.analyses.statistics import Interval
from ffmem.analyses.verdicts import Claim, Effect, Finding, Verdict, judge_claims

NUMBERS = Path(__file__).parent.parent / "docs" / "reference" / "data" / "results.jsonl"
RANDOM = "random weights"
STRONGEST = (  # the rule reads five triggers, and the older studies have read the strongest one
    "lower-values-do-not-agree",
    "upper-values-agree",
    "upper-values-beat-chance",
    "values-know-more-than-frequency",
    "values-follow-the-next-token",
)
Row = dict[str, Any]
Studies = Mapping[str, Row]


@dataclass(frozen=True)
class Told:
    """A study's verdict on one claim: by the rules of its day, and by the present ones."""

    before: str
    now: str
    reason: str
    all_controls: bool = True  # or random weights alone
    strongest: bool = False  # by the strongest trigger alone


def read_studies() -> dict[str, Row]:
    """Every study by its name."""
    lines = NUMBERS.read_text("utf-8").splitlines()
    return {row["study"]: row for row in map(json.loads, lines)}


def write_studies(studies: Iterable[Row]) -> None:
    """One line each."""
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in studies)
    NUMBERS.write_text("".join(lines), "utf-8")


def numbers_of(one: Interval) -> list[float | None]:
    """Estimate, low, high and n, in six digits."""
    ends = (one.estimate, one.low, one.high)
    return [*(float(f"{end:.6g}") if math.isfinite(end) else None for end in ends), one.n]


def interval_of(numbers: Sequence[float | None]) -> Interval:
    """The same back."""
    estimate, low, high, n = (math.nan if one is None else one for one in numbers)
    return Interval(estimate, low, high, int(n))


def part_of(finding: Finding) -> Row:
    """What decides a claim, as the file has it; `effects` of a cell has the names."""
    effects = [[float(f"{one.bar:.6g}"), *numbers_of(one.found)] for one in finding.effects]
    texts = {"reason": finding.reason, "alone": finding.alone}
    return {"effects": effects} | {name: text for name, text in texts.items() if text}


def finding_of(names: Sequence[str], part: Row) -> Finding:
    """The same back."""
    effects = tuple(
        Effect(name, interval_of(found), bar)
        for name, (bar, *found) in zip(names, part["effects"], strict=True)
    )
    reason, alone = (part.get(name, "") for name in ("reason", "alone"))
    return Finding(effects[0].found, None, "", effects, reason=reason, alone=alone)


def row_of(name: str, commit: str, verdicts: Iterable[Verdict]) -> Row:
    """A study with all controls as a line."""
    cells: list[Row] = []
    for one in verdicts:
        cells.append({"claim": one.name, "word": one.word, "reason": one.reason})
        if one.finding is not None:
            cells[-1]["number"] = numbers_of(one.finding.number)
    return {"study": name, "commit": commit, "verdicts": cells}


def with_words_before(row: Row, before: Row | None) -> Row:
    """A study that was measured again, with what the rules of its first measurement said."""
    cells = before["verdicts"] if before is not None else []
    words = {one["claim"]: one.get("before", one["word"]) for one in cells}
    told = [one | {"before": words.get(one["claim"], one["word"])} for one in row["verdicts"]]
    return row | {"verdicts": told}


def judge_findings(
    found: Mapping[str, Finding], controls: Sequence[Mapping[str, Finding]]
) -> list[Verdict]:
    """The verdicts of the present rules on findings by claim, against those of random weights."""
    claims = [
        Claim(c.name, c.name, c.says, c.paper, c.unit, c.holds_if, c.source, lambda found: found)
        for c in CLAIMS
        if c.name in found
    ]
    return judge_claims(claims, found, {RANDOM: controls})


def findings(row: Row, which: str) -> dict[str, Finding]:
    """What a study or its model with random weights has found, by claim."""
    return {one["claim"]: finding_of(one["effects"], one[which]) for one in row["verdicts"]}


def judge_again(studies: Studies, name: str) -> dict[str, Told]:
    """Then and now, by claim."""
    row = studies[name]
    before = {one["claim"]: one.get("before", one["word"]) for one in row["verdicts"]}
    if "controls" not in row:
        return {
            one["claim"]: Told(before[one["claim"]], one["word"], one["reason"])
            for one in row["verdicts"]
        }
    controls = [findings(studies[other], "untrained") for other in row["controls"]]
    return {
        one.name: Told(before[one.name], one.word, one.reason, False, one.name in STRONGEST)
        for one in judge_findings(findings(row, "found"), controls)
    }


def judge_random_weights(studies: Studies) -> dict[str, list[Verdict]]:
    """Every model with random weights, judged as if it were trained against those of other seeds.

    Without the claims that are no tests of training.
    """
    tables = {}
    for name, row in studies.items():
        others = [other for other in row.get("controls", ()) if other != name]
        if others:
            controls = [findings(studies[other], "untrained") for other in others]
            verdicts = judge_findings(findings(row, "untrained"), controls)
            tables[name] = [one for one in verdicts if one.finding and not one.finding.alone]
    return tables
