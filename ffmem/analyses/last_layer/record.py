"""Where the last layer composes a new token, as numbers and cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ffmem.analyses.statistics import Interval

Judgement = Literal["related", "distant"]


@dataclass(frozen=True)
class Case:
    """One prefix where the last layer replaces the residual's token by one of neither's."""

    sentence: int
    position: int
    prefix: str
    residual: str
    feedforward: str
    output: str
    gold: str | None
    related: bool  # as the rule judges
    because: str


@dataclass(frozen=True)
class LastLayer:
    """Cases of the last layer, the share the rule calls related, and that share by chance.

    `random` judges pairs of random tokens, `shuffled` the same tokens in other pairs, which keeps
    their frequencies, other pairs than those that set the distance.
    `controls` are for people, who must not know them from cases: a case whose residual's token is
    that of another prefix, from prefixes that are not among the cases where there are enough.
    """

    cases: tuple[Case, ...]
    controls: tuple[Case, ...]
    found: int  # composition cases in the sample
    related: Interval
    random: Interval
    shuffled: Interval
    readings: BlindCases | None = None  # of the demo alone


@dataclass(frozen=True)
class BlindCases:
    """Shares that a language model judged related, which read the cases blind; it is not a person.

    Of the `read` cases and controls, `found` are this study's; the others count nowhere. `judged`
    has its answer to every case of the study, None where that was not read.
    """

    annotator: str
    related: Interval
    controls: Interval
    read: int
    found: int
    judged: tuple[Judgement | None, ...]
    kappa: float  # with the rule, on the cases


@dataclass(frozen=True)
class JudgesCases:
    """Shares that one annotator judged related: of the cases, and of the blind controls."""

    annotator: str
    related: Interval
    controls: Interval


@dataclass(frozen=True)
class JudgedCases:
    """Changes of the last layer by people, or else by a language model, and by the rule.

    `alpha` is the agreement of the people (Krippendorff's).
    """

    rule: LastLayer
    judges: tuple[JudgesCases, ...]
    alpha: float
