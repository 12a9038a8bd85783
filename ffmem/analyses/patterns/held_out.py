"""Held-out score: does a pattern separate unseen triggers of its key from other prefixes?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from ffmem.analyses.patterns.prefixes import Prefix
from ffmem.analyses.patterns.record import Against, HeldOutScore
from ffmem.analyses.patterns.rule_annotator import Rule, RuleAnnotator
from ffmem.analyses.statistics import bootstrap

AGAINST: tuple[Against, ...] = ("random", "weak")


@dataclass(frozen=True)
class Trial:
    """A key's rules, its triggers that the annotator never saw, and prefixes to tell them from.

    `random` prefixes come from anywhere in the corpus; `weak` ones fire the key more weakly than
    its triggers, but more strongly than most of its random sample: near misses.
    """

    rules: Sequence[Rule]
    held: Sequence[Prefix]
    random: Sequence[Prefix]
    weak: Sequence[Prefix]


@dataclass(frozen=True)
class _Outcome:
    hits: int
    misses: int
    false: int
    auc: float


def held_out_scores(
    annotator: RuleAnnotator, trials: Iterable[Trial], on: str, seed: int = 0
) -> list[HeldOutScore]:
    """Score the patterns of some keys by class and by the prefixes that they must not match."""
    outcomes: dict[tuple[str, Against], list[_Outcome]] = {}
    for trial in trials:
        for key, found in _outcomes(annotator, trial).items():
            outcomes.setdefault(key, []).extend(found)
    generator = torch.Generator().manual_seed(seed)
    return [
        _sum_outcomes(on, *key, found=outcomes[key], generator=generator)
        for key in sorted(outcomes)
    ]


def _outcomes(annotator: RuleAnnotator, trial: Trial) -> dict[tuple[str, Against], list[_Outcome]]:
    """One key's patterns by class and by the prefixes that they must not match."""
    found: dict[tuple[str, Against], list[_Outcome]] = {}
    positive = annotator.scores(trial.rules, trial.held)
    for against, others in zip(AGAINST, (trial.random, trial.weak), strict=True):
        count = min(len(trial.held), len(others))
        if not trial.rules or not count:
            continue
        negative = annotator.scores(trial.rules, others[:count])
        for rule, yes, no in zip(trial.rules, positive, negative, strict=True):
            found.setdefault((rule.pattern.kind, against), []).append(_outcome(yes[:count], no))
        any_yes = [_coverage(scores) for scores in zip(*positive, strict=True)][:count]
        any_no = [_coverage(scores) for scores in zip(*negative, strict=True)]
        found["any", against] = [_outcome(any_yes, any_no)]
    return found


def _coverage(scores: Sequence[float]) -> float:
    """At least 0 where some pattern covers the prefix, and more the more do."""
    return sum(score >= 0 for score in scores) - 1.0


def _outcome(yes: Sequence[float], no: Sequence[float]) -> _Outcome:
    hits, false = sum(score >= 0 for score in yes), sum(score >= 0 for score in no)
    return _Outcome(hits, len(yes) - hits, false, auc(yes, no))


def auc(yes: Sequence[float], no: Sequence[float]) -> float:
    """The chance that one of `yes` scores above one of `no`, ties counting half."""
    difference = torch.tensor(yes)[:, None] - torch.tensor(no)[None]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _sum_outcomes(
    on: str, kind: str, against: Against, found: list[_Outcome], generator: torch.Generator
) -> HeldOutScore:
    hits, misses, false = (
        sum(getattr(outcome, name) for outcome in found) for name in ("hits", "misses", "false")
    )
    return HeldOutScore(
        on=on,
        kind=kind,
        against=against,
        patterns=len(found),
        precision=hits / (hits + false) if hits + false else float("nan"),
        recall=hits / (hits + misses),
        auc=bootstrap(torch.tensor([outcome.auc for outcome in found]), generator),
    )
