"""How people judge the last layer's changes: beside the rule, each other, and blind controls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ffmem.analyses.statistics import Interval, wilson
from ffmem.annotations.agreement import cohen_kappa, krippendorff_alpha
from ffmem.annotations.cases import Judgement, Judging, ShownCase, judged_cases


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
    disagreements: tuple[tuple[ShownCase, dict[str, Judgement]], ...]


def case_agreement(judgings: Sequence[Judging]) -> CaseAgreement:
    """Compare everybody's newest judgements."""
    judged = judged_cases(judgings)
    people = sorted({judging.annotator for judging in judgings})
    cases = {case: said for case, said in judged.items() if not case.control}
    found = [_pair(one, other, cases.values()) for one, other in combinations(people, 2)]
    return CaseAgreement(
        shares=tuple(
            CaseShare(who, _related(who, judged, False), _related(who, judged, True))
            for who in people
        ),
        pairs=tuple(pair for pair in found if pair.cases),
        alpha=krippendorff_alpha([list(said.values()) for said in cases.values()]),
        disagreements=tuple(
            (case, said) for case, said in cases.items() if len(set(said.values())) > 1
        ),
    )


def _related(who: str, judged: dict[ShownCase, dict[str, Judgement]], control: bool) -> Interval:
    mine = [said[who] for case, said in judged.items() if case.control == control and who in said]
    return wilson(mine.count("related"), len(mine))


def _pair(one: str, other: str, cases: Iterable[dict[str, Judgement]]) -> CasePair:
    both = [(said[one], said[other]) for said in cases if one in said and other in said]
    return CasePair(
        one=one,
        other=other,
        cases=len(both),
        same=sum(a == b for a, b in both) / max(len(both), 1),
        kappa=cohen_kappa([a for a, _ in both], [b for _, b in both]) if both else float("nan"),
    )
