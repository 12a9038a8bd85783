"""Fig 2 by one annotator's answers, with the control keys that were mixed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ffmem.analyses.statistics import wilson
from ffmem.annotations.scoring import worth
from ffmem.annotations.sheets import Saying
from ffmem.errors import StoreError
from ffmem.patterns.analysis import ControlRate
from ffmem.patterns.clusters import Embedding
from ffmem.patterns.held_out import HeldOut
from ffmem.patterns.record import Pattern, Summary, summary
from ffmem.patterns.surface_rules import Background
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class AnsweredStudy:
    """What one annotator found, and how often where there was nothing to find."""

    summary: Summary
    controls: tuple[ControlRate, ...]
    held_out: tuple[HeldOut, ...]
    records: tuple[Pattern, ...]


def answered_study(
    store: ScanStore,
    sayings: Sequence[Saying],
    annotator: str,
    embed: Callable[[], Callable[[Background], Embedding]],
    seed: int = 0,
) -> AnsweredStudy:
    """Fig 2 from the newest answers of one annotator; keys that somebody picked are left out.

    `embed` is called once there are any answers.
    """
    drawn = [saying for saying in sayings if not saying.sheet.chosen]
    mine = [saying for saying in drawn if saying.annotator == annotator]
    keys = [saying.annotated() for saying in mine if saying.sheet.key is not None]
    if not keys:
        if mine:
            raise StoreError(
                f"{annotator!r} has answered control keys only ({len(mine)} sheets), so there is "
                "no Fig 2; see `ffmem annotate score` and `ffmem annotate agreement`"
            )
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
    return AnsweredStudy(
        summary=summary(annotator, keys, seed),
        controls=tuple(controls),
        held_out=worth(store, mine, embed(), seed).annotators.get(annotator, ()),
        records=records,
    )
