"""Which claims a study of this size will probably leave undecided, said before it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ffmem.analyses.analysis import Workload
from ffmem.analyses.catalogue import CLAIMS
from ffmem.analyses.claim import FEWEST

Count = Callable[[Workload], float]


@dataclass(frozen=True)
class Enough:
    """How many units decide a claim: seen on studies of the demo and SmolLM2, else a judgement."""

    units: int
    what: str
    planned: Count


def _keys(work: Workload) -> float:
    return work.layers * min(work.sizes.pattern_keys, work.signs * work.memories / work.layers)


def _removal_keys(work: Workload) -> float:
    return work.layers * min(work.sizes.removal_keys, work.signs * work.memories / work.layers)


def _sentences(work: Workload) -> float:
    return work.sentences(work.sizes.sample)


def _silenced(work: Workload) -> float:
    return work.layers * min(work.sizes.causal_memories, work.memories / work.layers)


def _cells(work: Workload) -> float:
    return work.signs * work.memories


BY_CLAIM = {
    "every-key-has-a-pattern": Enough(160, "keys", _keys),
    "several-patterns-a-key": Enough(FEWEST, "keys", _keys),
    "most-triggers-are-covered": Enough(FEWEST, "keys", _keys),
    "lower-values-do-not-agree": Enough(4_000, "memories", lambda work: work.memories),
    "predictive-values-predict": Enough(3_000, "memories", lambda work: work.memories),
    "sure-values-are-right": Enough(16_000, "values", _cells),
    "activity-dips": Enough(6, "layers", lambda work: work.whole[0]),
    "the-dip-is-where-semantic-takes-over": Enough(6, "layers", lambda work: work.whole[0]),
}
BY_ANALYSIS = {
    "removal": Enough(125, "keys", _removal_keys),
    "values": Enough(5_500, "memories", lambda work: work.memories),
    "composition": Enough(55, "sentences", _sentences),
    "refinement": Enough(135, "sentences", _sentences),
    "causal": Enough(FEWEST, "memories", _silenced),
}
ALONE = ("layers-are-most-parameters",)  # counted, not measured
OF_PEOPLE = ("semantic-takes-over", "last-changes-are-distant")  # a rule cannot deny or judge them
OF_READERS = ("every-key-has-a-pattern", "several-patterns-a-key", *OF_PEOPLE)


def open_claims(
    work: Workload, only: Collection[str], has_readings: bool = False
) -> dict[str, list[str]]:
    """The names of claims that will probably stay undecided, by what they would want.

    `has_readings` says that somebody has read this study's keys and cases.
    """
    found: dict[str, list[str]] = {}
    for claim in CLAIMS:
        if claim.name in ALONE or not set(claim.analyses) <= set(only):
            continue
        if has_readings and claim.name in OF_READERS:
            continue
        enough = BY_CLAIM.get(claim.name, BY_ANALYSIS.get(claim.analysis))
        if claim.name in OF_PEOPLE:
            found.setdefault("people", []).append(claim.name)
        elif enough is not None and enough.planned(work) < enough.units:
            words = f"{enough.units:,} {enough.what}, not {enough.planned(work):,.0f}"
            found.setdefault(words, []).append(claim.name)
    return found


def open_claims_text(found: dict[str, list[str]]) -> str:
    """As a line of a plan; empty where all will probably be decided."""
    if not found:
        return ""
    parts = (f"{', '.join(names)} (wants {what})" for what, names in found.items())
    return f"probably undecided after it: {'; '.join(parts)}"
