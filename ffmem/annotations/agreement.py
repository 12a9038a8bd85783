"""How far annotators agree, and how often they see a pattern where there is none.

And what their patterns are worth: do they tell a key's other triggers from other prefixes?
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from ffmem.analyses.last_layer.record import Judgement, JudgesCases
from ffmem.analyses.patterns.held_out import Trial, held_out_scores
from ffmem.analyses.patterns.measure import (
    control_rate,
    key_trial,
    reference_prefixes,
    rule_annotator,
    summarise_patterns,
)
from ffmem.analyses.patterns.prefixes import PseudoKeys
from ffmem.analyses.patterns.record import (
    ControlRate,
    HeldOutScore,
    PairAgreement,
    Pattern,
    Summary,
)
from ffmem.analyses.patterns.rule_annotator import rules_from_examples
from ffmem.analyses.statistics import Interval, cohen_kappa, wilson
from ffmem.annotations.sheets import (
    CaseAnswer,
    CaseLine,
    PatternAnswer,
    Sheet,
    SheetAnswer,
    judgements_by_case,
    sheet_prefixes,
    to_answers,
)
from ffmem.errors import StoreError
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class Disagreement:
    """A prefix of a key that annotators label differently."""

    sheet: str
    key: str
    rank: int
    text: str  # of the prefix
    labels: dict[str, str]  # by annotator


@dataclass(frozen=True)
class Agreement:
    """Agreement on the four labels over real keys, and false patterns on control keys."""

    pairs: tuple[PairAgreement, ...]
    alpha: float  # Krippendorff's, over all annotators; nan where no prefix has two labels
    prefixes: int  # with at least two labels
    false_patterns: dict[str, Interval]  # by annotator
    disagreements: tuple[Disagreement, ...]


def agreement(answers: Sequence[SheetAnswer]) -> Agreement:
    """Compare everybody's newest answers; keys that somebody picked are left out."""
    answers = [answer for answer in answers if not answer.sheet.by_choice]
    labels: dict[tuple[str, str, int], dict[str, str]] = {}
    for answer in answers:
        if answer.sheet.key is not None:
            for rank, label in enumerate(answer.labels, 1):
                place = (answer.sheet.name, answer.sheet.key, rank)
                labels.setdefault(place, {})[answer.annotator] = label
    sheets = {answer.sheet.name: answer.sheet for answer in answers}
    people = sorted({answer.annotator for answer in answers})
    compared = [found for found in labels.values() if len(found) > 1]
    return Agreement(
        pairs=tuple(
            pair
            for one, other in combinations(people, 2)
            if (pair := _pair(one, other, labels)) is not None
        ),
        alpha=krippendorff_alpha([list(found.values()) for found in compared]),
        prefixes=len(compared),
        false_patterns={person: _false_patterns(person, answers) for person in people},
        disagreements=tuple(
            Disagreement(sheet, key, rank, _prefix_text(sheets[sheet], rank), found)
            for (sheet, key, rank), found in sorted(labels.items())
            if len(set(found.values())) > 1
        ),
    )


def _prefix_text(sheet: Sheet, rank: int) -> str:
    shown = sheet.prefixes[rank - 1]
    return shown.before + shown.last


def _pair(
    one: str, other: str, labels: dict[tuple[str, str, int], dict[str, str]]
) -> PairAgreement | None:
    both = {place: found for place, found in labels.items() if one in found and other in found}
    if not both:
        return None
    first, second = ([found[who] for found in both.values()] for who in (one, other))
    return PairAgreement.of(one, other, len({sheet for sheet, _, _ in both}), first, second)


def _false_patterns(person: str, answers: Iterable[SheetAnswer]) -> Interval:
    controls = [s for s in answers if s.annotator == person and s.sheet.control is not None]
    return wilson(sum(bool(answer.answers) for answer in controls), len(controls))


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

    shares: tuple[JudgesCases, ...]
    pairs: tuple[CasePair, ...]
    alpha: float  # Krippendorff's, over all annotators; nan where no case has two judgements
    disagreements: tuple[tuple[CaseLine, dict[str, Judgement]], ...]


def case_agreement(case_answers: Sequence[CaseAnswer]) -> CaseAgreement:
    """Compare everybody's newest judgements."""
    judged = judgements_by_case(case_answers)
    people = sorted({case_answer.annotator for case_answer in case_answers})
    cases = {case: judgements for case, judgements in judged.items() if not case.control}
    found = [_case_pair(one, other, cases.values()) for one, other in combinations(people, 2)]
    return CaseAgreement(
        shares=tuple(
            JudgesCases(who, _related_share(who, judged, False), _related_share(who, judged, True))
            for who in people
        ),
        pairs=tuple(pair for pair in found if pair.cases),
        alpha=krippendorff_alpha([list(judgements.values()) for judgements in cases.values()]),
        disagreements=tuple(
            (case, judgements)
            for case, judgements in cases.items()
            if len(set(judgements.values())) > 1
        ),
    )


def _related_share(
    who: str, judged: dict[CaseLine, dict[str, Judgement]], control: bool
) -> Interval:
    mine = [
        judgements[who]
        for case, judgements in judged.items()
        if case.control == control and who in judgements
    ]
    return wilson(mine.count("related"), len(mine))


def _case_pair(one: str, other: str, cases: Iterable[dict[str, Judgement]]) -> CasePair:
    both = [
        (judgements[one], judgements[other])
        for judgements in cases
        if one in judgements and other in judgements
    ]
    return CasePair(
        one=one,
        other=other,
        cases=len(both),
        same=sum(a == b for a, b in both) / max(len(both), 1),
        kappa=cohen_kappa([a for a, _ in both], [b for _, b in both]) if both else float("nan"),
    )


@dataclass(frozen=True)
class AnnotatorScores:
    """The held-out score of every annotator, on keys and on control keys."""

    annotators: dict[str, tuple[HeldOutScore, ...]]


def score_annotators(
    store: ScanStore,
    answers: Sequence[SheetAnswer],
    seed: int = 0,
) -> AnnotatorScores:
    """Score everybody's patterns, by class, with one yardstick: what the ticked prefixes share.

    The prefixes that a sheet's patterns must not match are drawn once per sheet, so that
    annotators of the same sheets are compared on the same ones.
    """
    annotator, pseudo = rule_annotator(store, seed)
    shown = sheet_prefixes(store, [answer.sheet for answer in answers], seed)
    others = reference_prefixes(store, seed)
    trials: dict[str, dict[str, list[Trial]]] = {}
    for answer in answers:
        sheet = answer.sheet
        if sheet.name not in shown:
            continue
        key, prefixes = sheet.address, shown[sheet.name]
        rules = rules_from_examples(annotator, answer.patterns(), prefixes, others)
        draw = PseudoKeys(pseudo.pool, seed + zlib.crc32(sheet.name.encode()), pseudo.shown)
        if key is not None:
            trial = key_trial(store, key, rules, draw)
        else:
            same = (
                draw.random(0)
                if sheet.control == "random"
                else draw.of_matching_frequency(0, prefixes)
            )
            trial = Trial(rules, same.shown, draw.random(0).shown, ())
        on = "controls" if key is None else "keys"
        trials.setdefault(answer.annotator, {"keys": [], "controls": []})[on].append(trial)
    return AnnotatorScores(
        {
            who: tuple(
                row for on in found for row in held_out_scores(annotator, found[on], on, seed)
            )
            for who, found in sorted(trials.items())
        }
    )


@dataclass(frozen=True)
class AnnotatorPatterns:
    """One annotator's patterns, and the false ones on control keys."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOutScore, ...]
    records: tuple[Pattern, ...]


def patterns_by_annotator(
    store: ScanStore,
    answers: Sequence[SheetAnswer],
    annotator: str,
    seed: int = 0,
) -> AnnotatorPatterns:
    """Fig 2 from the newest answers of one annotator; keys that somebody picked are left out."""
    drawn = [answer for answer in answers if not answer.sheet.by_choice]
    mine = [answer for answer in drawn if answer.annotator == annotator]
    keys = [answer.key_patterns() for answer in mine if answer.sheet.key is not None]
    if not keys:
        if mine:
            raise StoreError(
                f"{annotator!r} has answered control keys only ({len(mine)} sheets), so there is "
                "no Fig 2; see `ffmem annotate score` and `ffmem annotate agreement`"
            )
        known = ", ".join(sorted({answer.annotator for answer in answers})) or "nobody yet"
        raise StoreError(
            f"there are no answers by {annotator!r} (answers are by: {known}); import sheets with "
            "`ffmem annotate import`, or ask a model with `ffmem annotate llm`"
        )
    controls = []
    for kind in ("random", "matched"):
        those = [answer for answer in mine if answer.sheet.control == kind]
        if those:
            shown = [(answer.patterns(), len(answer.sheet.prefixes)) for answer in those]
            controls.append(control_rate(kind, shown))
    records = tuple(pattern for key in keys for pattern in key.patterns)
    return AnnotatorPatterns(
        summary=summarise_patterns(annotator, keys, seed),
        controls=tuple(controls),
        held_out=score_annotators(store, mine, seed).annotators.get(annotator, ()),
        records=records,
    )


def answers_by_rule(
    store: ScanStore,
    sheets: Sequence[Sheet],
    seed: int = 0,
) -> Iterator[tuple[Sheet, tuple[PatternAnswer, ...]]]:
    """Answer every sheet drawn from this scan; control sheets by the prefixes they show."""
    annotator, _ = rule_annotator(store, seed)
    shown = sheet_prefixes(store, sheets, seed)
    for sheet in sheets:
        if sheet.name in shown:
            yield sheet, to_answers(annotator.patterns(sheet.address, shown[sheet.name]))
