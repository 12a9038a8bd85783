"""What people judged, beside what the rules did: where there is any, it decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ffmem.analyses.last_layer import LastLayer
from ffmem.analyses.statistics import Interval
from ffmem.patterns.analysis import ControlRate, PatternResults
from ffmem.patterns.record import Summary
from ffmem.store.folder import StudyFolder
from ffmem.store.result_files import read_result, restore
from ffmem.studies.study import Study

PROGRAMS = ("rules", "llm:")  # what the names of annotators that are not people begin with


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
        """What needs no annotator."""
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


def judged_results(study: Study) -> dict[str, Any]:
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
