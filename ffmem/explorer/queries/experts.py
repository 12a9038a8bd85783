"""The experts of a study's mixtures: their use, and the patterns of their memories."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from ffmem.analyses.experts.record import Experts
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.figures import FigureFile, figure_files

EXPERTS = "experts"
EXPERT_KINDS = {"E": "routed experts", "S": "shared experts", "": "dense layers"}


@dataclass(frozen=True)
class PatternsPerMemory:
    """How many patterns the memories of one kind have, of those that were looked at."""

    kind: str  # of part: one of EXPERT_KINDS
    memories: int
    with_pattern: int
    patterns: int

    @property
    def mean(self) -> float:
        """Patterns per memory."""
        return self.patterns / max(self.memories, 1)


@dataclass(frozen=True)
class ExpertsView:
    """What there is to say of the experts; no `result` before the analysis has run."""

    result: Experts | None
    patterns: tuple[PatternsPerMemory, ...]
    figures: tuple[FigureFile, ...]


def has_experts(context: StudyContext) -> bool:
    """Whether the scanned layers have any."""
    return bool(context.store.manifest.mixtures)


def experts_view(context: StudyContext) -> ExpertsView:
    """The analysis of experts, its figures, and patterns where they were looked for."""
    study = context.study
    return ExpertsView(
        study.result(EXPERTS) if EXPERTS in study.names else None,
        _patterns_per_memory(context) if "patterns" in study.names else (),
        tuple(figure for figure in figure_files(context) if figure.analysis == EXPERTS),
    )


def _patterns_per_memory(context: StudyContext) -> tuple[PatternsPerMemory, ...]:
    """Patterns by the kind of part that a memory belongs to."""
    found = context.study.result("patterns")
    each = Counter(str(record.key) for record in found.records)
    drawn: dict[str, list[str]] = defaultdict(list)
    for addresses in found.drawn.values():
        for address in addresses:
            _, _, inside = address.partition(".")
            drawn[EXPERT_KINDS.get(inside[:1], EXPERT_KINDS[""])].append(address)
    return tuple(
        PatternsPerMemory(
            kind,
            len(drawn[kind]),
            sum(each[address] > 0 for address in drawn[kind]),
            sum(each[address] for address in drawn[kind]),
        )
        for kind in EXPERT_KINDS.values()
        if kind in drawn
    )
