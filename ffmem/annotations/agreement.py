"""How far annotators agree, and how often they see a pattern where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ffmem.analyses.statistics import Interval, wilson
from ffmem.annotations.sheets import (
    CaseAnswer,
    CaseLine,
    Judgement,
    SheetAnswer,
    judgements_by_case,
)


@dataclass(frozen=True)
class PairAgreement:
    """Two annotators on the keys that both did."""

    one: str
    other: str
    keys: int
    prefixes: int
    same: float  # share of prefixes with the same label
    kappa: float  # Cohen's: 1 is full agreement, 0 what chance gives


@dataclass(frozen=True)
class Disagreement:
    """A prefix of a key that annotators label differently."""

    sheet: str
    key: str
    rank: int
    labels: dict[str, str]  # by annotator


@dataclass(frozen=True)
class Agreement:
    """Agreement on the four labels over real keys, and false patterns on control keys."""

    pairs: tuple[PairAgreement, ...]
    alpha: float  # Krippendorff's, over all annotators; nan where no prefix has two labels
    prefixes: int  # with at least two labels
    false_patterns: dict[str, Interval]  # by annotator
    disagreements: tuple[Disagreement, ...]


def agreement(sayings: Sequence[SheetAnswer]) -> Agreement:
    """Compare everybody's newest answers; keys that somebody picked are left out."""
    sayings = [saying for saying in sayings if not saying.sheet.by_choice]
    labels: dict[tuple[str, str, int], dict[str, str]] = {}
    for saying in sayings:
        if saying.sheet.key is not None:
            for rank, label in enumerate(saying.labels, 1):
                place = (saying.sheet.name, saying.sheet.key, rank)
                labels.setdefault(place, {})[saying.annotator] = label
    people = sorted({saying.annotator for saying in sayings})
    compared = [found for found in labels.values() if len(found) > 1]
    return Agreement(
        pairs=tuple(
            pair
            for one, other in combinations(people, 2)
            if (pair := _pair(one, other, labels)) is not None
        ),
        alpha=krippendorff_alpha([list(found.values()) for found in compared]),
        prefixes=len(compared),
        false_patterns={person: _false_patterns(person, sayings) for person in people},
        disagreements=tuple(
            Disagreement(sheet, key, rank, found)
            for (sheet, key, rank), found in sorted(labels.items())
            if len(set(found.values())) > 1
        ),
    )


def _pair(
    one: str, other: str, labels: dict[tuple[str, str, int], dict[str, str]]
) -> PairAgreement | None:
    both = {place: found for place, found in labels.items() if one in found and other in found}
    if not both:
        return None
    first, second = ([found[who] for found in both.values()] for who in (one, other))
    return PairAgreement(
        one=one,
        other=other,
        keys=len({sheet for sheet, _, _ in both}),
        prefixes=len(both),
        same=sum(a == b for a, b in zip(first, second, strict=True)) / len(both),
        kappa=cohen_kappa(first, second),
    )


def _false_patterns(person: str, sayings: Iterable[SheetAnswer]) -> Interval:
    controls = [s for s in sayings if s.annotator == person and s.sheet.control is not None]
    return wilson(sum(bool(saying.said) for saying in controls), len(controls))


def cohen_kappa(one: Sequence[str], other: Sequence[str]) -> float:
    """Agreement of two annotators beyond what their own label shares give; nan if undefined."""
    count = len(one)
    same = sum(a == b for a, b in zip(one, other, strict=True)) / count
    first, second = Counter(one), Counter(other)
    chance = sum(first[label] * second[label] for label in first) / count**2
    return (same - chance) / (1 - chance) if chance < 1 else float("nan")


def krippendorff_alpha(units: Sequence[Sequence[str]]) -> float:
    """Krippendorff's alpha for names without order; units with fewer than two labels do not count.

    1 less the observed share of differing pairs within units over that among all labels.
    """
    units = [unit for unit in units if len(unit) > 1]
    total = sum(len(unit) for unit in units)
    if not total:
        return float("nan")
    overall = Counter(label for unit in units for label in unit)
    observed = sum(_differing(Counter(unit)) / (len(unit) - 1) for unit in units) / total
    expected = _differing(overall) / (total * (total - 1))
    return 1 - observed / expected if expected else float("nan")


def _differing(counts: Counter[str]) -> int:
    """Ordered pairs of different labels."""
    size = counts.total()
    return size * size - sum(count * count for count in counts.values())


@dataclass(frozen=True)
class CaseShare:
    """One annotator: shares judged related, of the cases and of the blind controls."""

    annotator: str
    related: Interval
    controls: Interval


@dataclass(frozen=True)
class CasePair:
    """Two annotators on the cases that both judged, controls left out."""

    one: str
    other: str
    cases: int
    same: float
    kappa: float  # Cohen's: 1 is full agreement, 0 what chance gives


@dataclass(frozen=True)
class CaseAgreement:
    """Everybody's shares, how far any two agree, and the cases on which judgements differ."""

    shares: tuple[CaseShare, ...]
    pairs: tuple[CasePair, ...]
    alpha: float  # Krippendorff's, over all annotators; nan where no case has two judgements
    disagreements: tuple[tuple[CaseLine, dict[str, Judgement]], ...]


def case_agreement(judgings: Sequence[CaseAnswer]) -> CaseAgreement:
    """Compare everybody's newest judgements."""
    judged = judgements_by_case(judgings)
    people = sorted({judging.annotator for judging in judgings})
    cases = {case: said for case, said in judged.items() if not case.control}
    found = [_case_pair(one, other, cases.values()) for one, other in combinations(people, 2)]
    return CaseAgreement(
        shares=tuple(
            CaseShare(who, _related_share(who, judged, False), _related_share(who, judged, True))
            for who in people
        ),
        pairs=tuple(pair for pair in found if pair.cases),
        alpha=krippendorff_alpha([list(said.values()) for said in cases.values()]),
        disagreements=tuple(
            (case, said) for case, said in cases.items() if len(set(said.values())) > 1
        ),
    )


def _related_share(
    who: str, judged: dict[CaseLine, dict[str, Judgement]], control: bool
) -> Interval:
    mine = [said[who] for case, said in judged.items() if case.control == control and who in said]
    return wilson(mine.count("related"), len(mine))


def _case_pair(one: str, other: str, cases: Iterable[dict[str, Judgement]]) -> CasePair:
    both = [(said[one], said[other]) for said in cases if one in said and other in said]
    return CasePair(
        one=one,
        other=other,
        cases=len(both),
        same=sum(a == b for a, b in both) / max(len(both), 1),
        kappa=cohen_kappa([a for a, _ in both], [b for _, b in both]) if both else float("nan"),
    )
