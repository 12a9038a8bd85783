"""Judge claims: from a study and its controls, whether each holds, and how sure that is.

A control is the same architecture without what training has left: with random weights, or with the
model's own weights in random order. There are several of both kinds, because one is a lottery.

What people judged stands beside what the rules did: where there is any, it decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ffmem.analyses.claim import (
    FEWEST,
    AnyClaim,
    Finding,
    Results,
    Source,
    Unit,
    exact,
    interval_text,
)
from ffmem.analyses.open_claims.need import Need
from ffmem.analyses.statistics import (
    PAPER_LAYERS,
    Interval,
    beyond_seeds,
    chance_at_least,
    chance_at_most,
    difference,
    holm,
)

Outcome = Literal["holds", "also without training", "does not hold", "undecided"]
SIGNS: dict[Outcome, str] = {
    "holds": "✓",
    "also without training": "≈",
    "does not hold": "✗",
    "undecided": "?",
}
NO_CONTROL = "no control"  # the reason of what could hold otherwise
ERROR_RATE = 0.05  # that any claim of a table is wrongly said to hold
FIRST_LOOK = 0.9  # of it; the second look has half of the rest, and each later one half of that
Controls = Mapping[str, Sequence[Results]]  # of every kind those of each seed


@dataclass(frozen=True)
class ControlEffect:
    """The first effect in the controls of one kind.

    `effect` is their mean, with the interval in which another seed's would lie.
    """

    kind: str
    effect: Interval
    lowest: float
    highest: float
    seeds: int
    more: Interval  # how much larger it is in the study
    passes: bool  # most of them lie above the bars


@dataclass(frozen=True)
class Verdict:
    """A claim, what was found here and in the controls, and the outcome with its reason.

    `controls` begins with the kind that is hardest to beat. `chance` is the p-value of *holds*,
    corrected for all claims of the table (Holm) and for the looks at it. `need` says of an
    undecided claim what would decide it.
    """

    name: str
    analysis: str
    says: str
    paper: str
    unit: Unit
    holds_if: str
    source: Source
    word: Outcome
    reason: str
    finding: Finding | None
    controls: tuple[ControlEffect, ...]
    chance: float
    look: int = 1
    need: Need | None = None

    @property
    def effect_text(self) -> str:
        """The first effect here and in the controls, as a person reads it."""
        if self.finding is None or not self.finding.effects:
            return ""
        unit: Unit = "number" if self.unit == "rank" else self.unit
        first = self.finding.effects[0]
        words = [f"{first.name}: {interval_text(first.found, unit)}"]
        words += [f"{one.kind} {control_text(one, unit)}" for one in self.controls]
        words += [f"looked at {self.look} times"] if self.look > 1 else []
        if self.finding.alone:
            words.append(f"judged by its bar alone: {self.finding.alone}")
        return "; ".join(words)


def control_text(one: ControlEffect, unit: Unit) -> str:
    """The range of a kind of controls: `42.0 % .. 56.9 % in 3`."""
    lowest, highest = (
        interval_text(exact(end, 0), unit, interval=False) for end in (one.lowest, one.highest)
    )
    return lowest if one.seeds == 1 else f"{lowest} .. {highest} in {one.seeds}"


@dataclass(frozen=True)
class LaterLook:
    """What a later look at a claim found in this study and, by kind, in its controls."""

    look: int  # from 2 on
    finding: Finding
    controls: Mapping[str, Sequence[Finding]]


def look_weight(look: int) -> float:
    """What a p-value counts times: all looks together have the error rate of one."""
    share = FIRST_LOOK if look == 1 else (1 - FIRST_LOOK) / 2 ** (look - 1)
    return 1 / share


def judge_claims(
    claims: Sequence[AnyClaim],
    results: Results,
    controls: Controls | None = None,
    later: Mapping[str, LaterLook] | None = None,
    layers: int = PAPER_LAYERS,
) -> list[Verdict]:
    """Every claim with its outcome, from the results of a study and of its controls.

    The paper's claims are one family for the correction, and those of others another. `later` has
    the last look at the claims that were looked at again, by name. So many `layers` were studied.
    """
    again = later or {}
    looks = [again[one.name].look if one.name in again else 1 for one in claims]
    found = [again[one.name].finding if one.name in again else one.find(results) for one in claims]
    beside = [
        control_effects(
            mine,
            again[one.name].controls
            if one.name in again
            else findings_beside(one, mine, controls or {}),
            layers,
        )
        for one, mine in zip(claims, found, strict=True)
    ]
    chances = [
        (
            look_weight(look) * chance_of_holding(mine, others),
            look_weight(look) * chance_of_failing(mine, others),
        )
        for look, mine, others in zip(looks, found, beside, strict=True)
    ]
    corrected = [(1.0, 1.0)] * len(claims)
    for papers in (True, False):
        family = [
            place
            for place, mine in enumerate(found)
            if (claims[place].source == "paper") == papers and mine is not None and not mine.reason
        ]
        both = (holm([chances[place][which] for place in family]) for which in (0, 1))
        for place, holding, failing in zip(family, *both, strict=True):
            corrected[place] = holding, failing
    return [
        _verdict(one, found[place], beside[place], corrected[place], looks[place])
        for place, one in enumerate(claims)
    ]


def findings_beside(
    one: AnyClaim, mine: Finding | None, controls: Controls
) -> dict[str, list[Finding]]:
    """What a finding is compared with: keys that the same judge read, or all controls by kind."""
    if mine is not None and mine.same_judge is not None:
        return {"permuted weights": [mine.same_judge]}
    found = {
        kind: [finding for results in each if (finding := one.find(results)) is not None]
        for kind, each in controls.items()
    }
    return {kind: findings for kind, findings in found.items() if findings}


def control_effects(
    finding: Finding | None, controls: Mapping[str, Sequence[Finding]], layers: int
) -> tuple[ControlEffect, ...]:
    """The first effect in every kind of controls, the one that is hardest to beat first."""
    if finding is None or not finding.effects or finding.alone:
        return ()
    known = {
        kind: [
            one for one in found if one.effects and not math.isnan(one.effects[0].found.estimate)
        ]
        for kind, found in controls.items()
    }
    known = {kind: found for kind, found in known.items() if found}
    each = [[one.effects[0].found for one in found] for found in known.values()]
    spans = beyond_seeds(each, layers)
    rows = []
    for (kind, found), span in zip(known.items(), spans, strict=True):
        seeds = [one.effects[0].found.estimate for one in found]
        more = difference(finding.effects[0].found, span)
        most = 2 * sum(map(passes, found)) > len(found)
        rows.append(ControlEffect(kind, span, min(seeds), max(seeds), len(seeds), more, most))
    return tuple(sorted(rows, key=lambda row: row.more.low))


def chance_of_holding(finding: Finding | None, controls: Sequence[ControlEffect]) -> float:
    """The largest p-value of all that must be so: every effect, and more than in the controls."""
    if finding is None or finding.reason or not finding.effects:
        return 1.0
    against = max((chance_at_most(one.more, 0.0) for one in controls), default=1.0)
    return max(0.0 if finding.alone else against, *(effect.chance for effect in finding.effects))


def chance_of_failing(finding: Finding | None, controls: Sequence[ControlEffect]) -> float:
    """The smallest p-value of all that denies it, for as many as there are."""
    if finding is None or finding.reason or not finding.effects:
        return 1.0
    ways = [effect.chance_of_less for effect in finding.effects]
    ways += [chance_at_least(one.more, 0.0) for one in controls[:1]]
    return min(1.0, len(ways) * min(ways))


def passes(finding: Finding) -> bool:
    """Whether every effect of a control lies above its bar."""
    return all(effect.found.estimate > effect.bar for effect in finding.effects)


def _verdict(
    one: AnyClaim,
    finding: Finding | None,
    controls: tuple[ControlEffect, ...],
    chances: tuple[float, float],
    look: int,
) -> Verdict:
    word, reason = decide(finding, controls, *chances)
    return Verdict(
        one.name,
        one.analysis,
        one.says,
        one.paper,
        one.unit,
        one.holds_if,
        one.source,
        word,
        reason,
        finding,
        controls,
        chances[0],
        look,
    )


CORRECTION = "but that may be chance among so many claims"


def decide(
    finding: Finding | None,
    controls: Sequence[ControlEffect],
    chance: float,
    chance_of_less: float,
) -> tuple[Outcome, str]:
    """The outcome and its reason.

    The chances are the corrected p-values of *holds* and of *does not hold*.
    """
    if finding is None:
        return "undecided", "not measured"
    if finding.reason:
        return "undecided", finding.reason
    denied, hardest = chance_of_less <= ERROR_RATE, controls[0] if controls else None
    failing = [effect for effect in finding.effects if effect.found.high <= effect.bar]
    if denied and (known := [effect for effect in failing if effect.found.n >= FEWEST]):
        return "does not hold", known[0].name  # whatever is not known of the others
    if reason := unfit(finding) or (f"below the bar, {CORRECTION}" if failing else ""):
        return "undecided", reason
    reaching = [effect for effect in finding.effects if effect.found.low <= effect.bar]
    if hardest is not None and denied and is_less(hardest, bool(reaching)):
        return "does not hold", f"less than with {hardest.kind}"
    if reaching:
        return "undecided", f"the interval reaches the bar: {reaching[0].name}"
    if chance <= ERROR_RATE:
        return "holds", finding.alone
    return _not_surely_more(finding, hardest)


def is_less(hardest: ControlEffect, reaching: bool) -> bool:
    """Whether the study has clearly less than a control, and the claim is not true of both."""
    return hardest.more.high <= 0 and (reaching or not hardest.passes)


def unfit(finding: Finding) -> str:
    """Why the effects cannot decide the claim; empty text where they can."""
    if any(math.isnan(effect.found.estimate) for effect in finding.effects):
        return "nothing to measure it on"
    few = [effect for effect in finding.effects if effect.found.n < FEWEST]
    return f"only {few[0].found.n} observations" if few else ""


def _not_surely_more(finding: Finding, hardest: ControlEffect | None) -> tuple[Outcome, str]:
    """The outcome of a claim whose effects are there, but not surely more than in the controls."""
    if finding.alone:
        return "undecided", f"above the bar, {CORRECTION}"
    if hardest is None:
        return "undecided", NO_CONTROL
    if hardest.more.low > 0:
        return "undecided", f"more than with {hardest.kind}, {CORRECTION}"
    if hardest.passes:
        return "also without training", f"not clearly more than with {hardest.kind}"
    return "undecided", f"not clearly more than with {hardest.kind}, where it does not hold"


@dataclass(frozen=True)
class Tally:
    """How many of the paper's claims have each outcome; those of others are not among them."""

    claims: int
    outcomes: dict[Outcome, int]
    untested: int  # undecided only because there is no control

    @property
    def text(self) -> str:
        """The headline: `10 of 22 claims of the paper hold, 7 also without training, 5 do not`.

        Where no control was studied it says how many could hold.
        """
        holding, failing = self.outcomes["holds"], self.outcomes["does not hold"]
        also, undecided = self.outcomes["also without training"], self.outcomes["undecided"]
        denied = f", {failing} {'does' if failing == 1 else 'do'} not"
        if self.untested:
            rest = undecided - self.untested
            words = f"{self.untested} of {self.claims} claims of the paper may hold, but have no "
            words += "controls to compare with"
            if holding:
                words += f", {holding} hold{'s' * (holding == 1)}"
            return words + f"{denied} hold" + (f", {rest} undecided" if rest else "")
        words = f"{holding} of {self.claims} claims of the paper hold{'s' * (holding == 1)}"
        words += f", {also} also without training{denied}"
        return words + (f", {undecided} undecided" if undecided else "")


def tally(verdicts: Sequence[Verdict]) -> Tally:
    """Count the outcomes of the paper's claims."""
    mine = [verdict for verdict in verdicts if verdict.source == "paper"]
    words = [verdict.word for verdict in mine]
    outcomes = {name: words.count(name) for name in SIGNS}
    untested = sum(verdict.reason == NO_CONTROL for verdict in mine)
    return Tally(len(mine), outcomes, untested)
