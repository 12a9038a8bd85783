"""Fig 2 by one annotator's answers, with the control keys that were mixed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffmem.analyses.intervals import wilson
from ffmem.analyses.pattern_study import ControlRate
from ffmem.analyses.patterns import Pattern, Summary, summary
from ffmem.annotations.records import Saying
from ffmem.errors import StoreError


@dataclass(frozen=True)
class AnsweredStudy:
    """What one annotator found, and how often where there was nothing to find."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    records: tuple[Pattern, ...]


def answered_study(sayings: Sequence[Saying], annotator: str) -> AnsweredStudy:
    """Fig 2 from the newest answers of one annotator; keys that somebody picked are left out."""
    drawn = [saying for saying in sayings if not saying.sheet.chosen]
    mine = [saying for saying in drawn if saying.annotator == annotator]
    keys = [saying.annotated() for saying in mine if saying.sheet.key is not None]
    if not keys:
        known = ", ".join(sorted({saying.annotator for saying in sayings})) or "nobody yet"
        raise StoreError(
            f"there are no answers by {annotator!r} (answers are by: {known}); import sheets with "
            "`ffmem annotate import`"
        )
    controls = []
    for kind in ("random", "matched"):
        those = [saying for saying in mine if saying.sheet.control == kind]
        labels = [label for saying in those for label in saying.labels]
        if those:
            false = wilson(sum(bool(saying.said) for saying in those), len(those))
            covered = sum(label != "not covered" for label in labels) / len(labels)
            controls.append(ControlRate(kind, false, covered))
    records = tuple(pattern for key in keys for pattern in key.patterns)
    return AnsweredStudy(summary(annotator, keys), tuple(controls), records)
