"""Claims as functions that decide, from a study and its untrained twin, whether each holds.

What people judged stands beside what the rules did: where there is any, it decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ffmem.analyses.statistics import Interval, chance_at_most, difference, holm
from ffmem.store.folder import StudyFolder
from ffmem.store.result_files import read_result, restore

if TYPE_CHECKING:
    from ffmem.analyses.last_layer import LastLayer
    from ffmem.patterns.analysis import ControlRate, PatternResults
    from ffmem.patterns.record import Summary
    from ffmem.studies.study import Study

Unit = Literal["share", "number", "change", "rank"]
Source = Literal["paper", "conjecture", "own"]  # who says it; only the paper's are counted as such
Outcome = Literal["holds", "also without training", "does not hold", "undecided"]
ERROR_RATE = 0.05  # that any claim of a table is wrongly said to hold
FEWEST = 20  # prefixes or keys below which no interval is believed
TWICE = 2  # as large as the twin's: random weights differ between seeds, not only prefixes
PROGRAMS = ("rules", "llm:")  # what the names of annotators that are not people begin with


@dataclass(frozen=True)
class Effect:
    """A number or difference above zero that must lie above its bar, by prefix or by key."""

    name: str
    found: Interval
    bar: float = 0.0

    @property
    def chance(self) -> float:
        """The p-value that it is not above the bar."""
        return 1.0 if self.found.n < FEWEST else chance_at_most(self.found, self.bar)


@dataclass(frozen=True)
class Finding:
    """A claim's number in this study, its control, and the effects that decide.

    Every effect must lie above its bar, and the first above twice the untrained twin's.
    `reason` says why nothing can be decided, where that is so.
    """

    number: Interval
    control: Interval | None
    against: str  # what the control is
    effects: tuple[Effect, ...] = ()
    detail: str = ""
    reason: str = ""


Results = Mapping[str, Any]  # by name of analysis


@dataclass(frozen=True)
class Claim:
    """One claim: the paper's words and number, and the rule that decides it by computation."""

    name: str
    analyses: tuple[str, ...]  # that answer it; the first names its chapter
    says: str
    paper: str
    unit: Unit
    holds_if: str
    source: Source
    check: Callable[..., Finding]

    @property
    def analysis(self) -> str:
        """The analysis in whose chapter it stands."""
        return self.analyses[0]

    def find(self, results: Results) -> Finding | None:
        """The finding in these results; None where an analysis has none."""
        if any(results.get(name) is None for name in self.analyses):
            return None
        try:
            found = self.check(*(results[name] for name in self.analyses))
        except KeyError:  # an effect that older programs did not write
            number = Interval(math.nan, math.nan, math.nan, 0)
            again = ",".join(self.analyses)
            reason = f"measured by an older ffmem; run the study with --again {again}"
            return Finding(number, None, "", reason=reason)
        return found


def claim(
    analyses: str, paper: str, unit: Unit, holds_if: str, source: Source = "paper"
) -> Callable[[Callable[..., Finding]], Claim]:
    """Make a claim of a function that decides it: its docstring is the claim, its name the name.

    `analyses` are names with a comma between them; the function takes one result of each.
    """

    def make(check: Callable[..., Finding]) -> Claim:
        name, says = check.__name__.replace("_", "-"), check.__doc__ or ""
        return Claim(name, tuple(analyses.split(",")), says, paper, unit, holds_if, source, check)

    return make


@dataclass(frozen=True)
class Verdict:
    """A claim, what was found here and in the untrained twin, and the outcome with its reason.

    `chance` is the p-value of *holds*, corrected for all claims of the table (Holm).
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
    twin: Interval | None  # the first effect, there
    chance: float

    @property
    def effect_text(self) -> str:
        """The first effect here and in the untrained twin, as a person reads it."""
        if self.finding is None or not self.finding.effects:
            return ""
        unit: Unit = "number" if self.unit == "rank" else self.unit
        first = self.finding.effects[0]
        words = f"{first.name}: {interval_text(first.found, unit)}"
        return (
            words if self.twin is None else f"{words}; untrained {interval_text(self.twin, unit)}"
        )


def judge_claims(
    claims: Sequence[Claim], results: Results, twin: Results | None = None
) -> list[Verdict]:
    """Every claim with its outcome, from the results of a study and of its untrained twin."""
    pairs = [(one.find(results), one.find(twin or {})) for one in claims]
    chances = [chance_of_holding(mine, other) for mine, other in pairs]
    measured = [place for place, (mine, _) in enumerate(pairs) if mine is not None]
    corrected = dict(zip(measured, holm([chances[place] for place in measured]), strict=True))
    return [
        _verdict(one, *pairs[place], corrected.get(place, 1.0)) for place, one in enumerate(claims)
    ]


def chance_of_holding(finding: Finding | None, twin: Finding | None) -> float:
    """The largest p-value of all that must be so: every effect, and twice that without training."""
    if finding is None or finding.reason or not finding.effects:
        return 1.0
    more = above_twin(finding, twin)
    against = 1.0 if more is None else chance_at_most(more, 0.0)
    return max(against, *(effect.chance for effect in finding.effects))


def above_twin(finding: Finding, twin: Finding | None) -> Interval | None:
    """The first effect less twice the twin's, if that is above zero; None where it has none."""
    if twin is None or not twin.effects or math.isnan(twin.effects[0].found.estimate):
        return None
    other = twin.effects[0].found
    middle, low, high = (TWICE * max(0.0, x) for x in (other.estimate, other.low, other.high))
    return difference(finding.effects[0].found, Interval(middle, low, high, other.n))


def passes(finding: Finding) -> bool:
    """Whether every effect lies above its bar, by interval."""
    return all(effect.found.low > effect.bar for effect in finding.effects)


def _verdict(one: Claim, finding: Finding | None, twin: Finding | None, chance: float) -> Verdict:
    word, reason = decide(finding, twin, chance)
    known = None if twin is None or not twin.effects else twin.effects[0].found
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
        known,
        chance,
    )


def decide(finding: Finding | None, twin: Finding | None, chance: float) -> tuple[Outcome, str]:
    """The outcome and its reason; `chance` is the corrected p-value of *holds*."""
    if finding is None:
        return "undecided", "not measured"
    if finding.reason:
        return "undecided", finding.reason
    if any(math.isnan(effect.found.estimate) for effect in finding.effects):
        return "undecided", "nothing to measure it on"
    failing = [effect for effect in finding.effects if effect.found.high <= effect.bar]
    if few := [effect for effect in finding.effects if effect.found.n < FEWEST]:
        return "undecided", f"only {few[0].found.n} observations"
    if failing:
        return "does not hold", failing[0].name
    if reaching := [effect for effect in finding.effects if effect.found.low <= effect.bar]:
        return "undecided", f"the interval reaches the bar: {reaching[0].name}"
    if chance <= ERROR_RATE:
        return "holds", ""
    return _against_twin(finding, twin)


def _against_twin(finding: Finding, twin: Finding | None) -> tuple[Outcome, str]:
    """The outcome of a claim whose effects are there, but not surely more than in the twin."""
    more = above_twin(finding, twin)
    if twin is None or more is None:
        return "undecided", "no untrained twin"
    if more.low > 0:
        return "undecided", "not after correction for the number of claims"
    if passes(twin):
        return "also without training", "not twice as large as in the untrained twin"
    if more.high <= 0:
        return "undecided", "not twice as large as in the untrained twin, where it does not hold"
    return "undecided", "not clearly twice as large as in the untrained twin"


@dataclass(frozen=True)
class Tally:
    """How many of the paper's claims have each outcome; those of others are not among them."""

    claims: int
    outcomes: dict[Outcome, int]
    others: int  # conjectures and our own

    @property
    def text(self) -> str:
        """The headline: `10 of 22 claims of the paper hold, 7 also without training, 5 do not`."""
        holding, failing = self.outcomes["holds"], self.outcomes["does not hold"]
        words = f"{holding} of {self.claims} claims of the paper hold{'s' * (holding == 1)}"
        words += f", {self.outcomes['also without training']} also without training"
        words += f", {failing} {'does' if failing == 1 else 'do'} not"
        undecided = self.outcomes["undecided"]
        return words + (f", {undecided} undecided" if undecided else "")


def tally(verdicts: Sequence[Verdict]) -> Tally:
    """Count the outcomes of the paper's claims."""
    mine = [verdict.word for verdict in verdicts if verdict.source == "paper"]
    names: tuple[Outcome, ...] = (
        "holds",
        "also without training",
        "does not hold",
        "undecided",
    )
    outcomes = {name: mine.count(name) for name in names}
    return Tally(len(mine), outcomes, len(verdicts) - len(mine))


def interval_text(number: Interval | None, unit: Unit, interval: bool = True) -> str:
    """An interval as a person reads it: `3.5 % (3.1 .. 3.9, n = 4,096)`."""
    if number is None or math.isnan(number.estimate):
        return "–"
    scale, end = (100, " %") if unit in ("share", "rank") else (1, " %" if unit == "change" else "")
    value = f"{_number_text(scale * number.estimate)}{end}"
    if not interval:
        return value
    high = min(number.high, 1.0) if unit == "share" else number.high  # no share is above 100 %
    ends = (
        ""
        if math.isnan(number.low) or number.low == number.high  # counted, not estimated
        else " .. ".join(_number_text(scale * one) for one in (number.low, high)) + ", "
    )
    return f"{value} ({ends}n\u00a0=\u00a0{number.n:,})"


def _number_text(value: float) -> str:
    """More places for small numbers, so that 0.04 does not become 0.0."""
    places = 1 if abs(value) >= 1 else 2
    return f"{round(value, places) + 0.0:.{places}f}"


def exact(value: float, n: int) -> Interval:
    """A number that was counted, not estimated from a sample of itself."""
    return Interval(value, math.nan, math.nan, n)


@dataclass(frozen=True)
class PersonsPatterns:
    """Fig 2 by one person."""

    summary: Summary
    controls: tuple[ControlRate, ...]


@dataclass(frozen=True)
class JudgedPatterns:
    """Fig 2 by people, with their agreement (Krippendorff's alpha), and by the rule."""

    rule: PatternResults
    people: tuple[PersonsPatterns, ...]
    alpha: float

    @property
    def endings(self) -> dict[str, Interval]:
        """The rule's effects on shared last words, which need no annotator."""
        return self.rule.endings


@dataclass(frozen=True)
class PersonsCases:
    """Shares that one person judged related: of the cases, and of the blind controls."""

    annotator: str
    related: Interval
    controls: Interval


@dataclass(frozen=True)
class JudgedCases:
    """Changes of the last layer by people, with their agreement, and by the rule."""

    rule: LastLayer
    people: tuple[PersonsCases, ...]
    alpha: float


def is_person(annotator: str) -> bool:
    """Whether an annotator's name is that of a person."""
    return not annotator.startswith(PROGRAMS)


def results_with_judgements(study: Study) -> dict[str, Any]:
    """The results of a study by name of analysis, those that people judged with what they said."""
    results = {name: study.result(name) for name in study.names}
    folder = study.store.folder
    if "patterns" in results and (found := people_on_patterns(folder)):
        alpha = _plain(folder, "agreement").get("alpha")
        results["patterns"] = JudgedPatterns(results["patterns"], found, _number(alpha))
    cases = _plain(folder, "case-agreement")
    if "last-layer" in results and (judges := people_on_cases(cases)):
        results["last-layer"] = JudgedCases(
            results["last-layer"], judges, _number(cases.get("alpha"))
        )
    return results


def people_on_patterns(folder: StudyFolder) -> tuple[PersonsPatterns, ...]:
    """Every person's patterns that `ffmem patterns --annotator` has left in a folder."""
    from ffmem.patterns.analysis import ControlRate  # here: verdicts are read without torch
    from ffmem.patterns.record import Summary

    found = [read_result(path).result for path in folder.matching(folder.result("patterns-*"))]
    return tuple(
        PersonsPatterns(
            restore(Summary, one["summary"]), restore(tuple[ControlRate, ...], one["controls"])
        )
        for one in found
        if is_person(one["summary"]["annotator"])
    )


def people_on_cases(found: dict[str, Any]) -> tuple[PersonsCases, ...]:
    """Every person's judgements in what `ffmem annotate agreement` has left."""
    shares = restore(tuple[PersonsCases, ...], found.get("shares", []))
    return tuple(one for one in shares if is_person(one.annotator) and one.related.n)


def _plain(folder: StudyFolder, name: str) -> dict[str, Any]:
    """A result in plain values; nothing where there is none."""
    path = folder.result(name)
    found: dict[str, Any] = read_result(path).result if path.exists() else {}
    return found


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
