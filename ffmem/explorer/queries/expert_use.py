"""The experts of a study's mixtures: their use, and the patterns of their memories."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from ffmem.analyses.expert_use import Experts
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.figures import FigureFile, figure_files

NAME = "experts"
KINDS = {"E": "routed experts", "S": "shared experts", "": "dense layers"}


@dataclass(frozen=True)
class PatternsPerMemory:
    """How many patterns the memories of one kind have, of those that were looked at."""

    kind: str  # of part: one of KINDS
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


def has_experts(explored: StudyContext) -> bool:
    """Whether the scanned layers have any."""
    return bool(explored.store.manifest.mixtures)


def experts_view(explored: StudyContext) -> ExpertsView:
    """The analysis of experts, its figures, and patterns where they were looked for."""
    study = explored.study
    return ExpertsView(
        study.result(NAME) if NAME in study.names else None,
        patterns_per_memory(explored) if "patterns" in study.names else (),
        tuple(figure for figure in figure_files(explored) if figure.analysis == NAME),
    )


def patterns_per_memory(explored: StudyContext) -> tuple[PatternsPerMemory, ...]:
    """Patterns by the kind of part that a memory belongs to."""
    found = explored.study.result("patterns")
    each = Counter(str(record.key) for record in found.records)
    drawn: dict[str, list[str]] = defaultdict(list)
    for addresses in found.drawn.values():
        for address in addresses:
            _, _, inside = address.partition(".")
            drawn[KINDS.get(inside[:1], KINDS[""])].append(address)
    return tuple(
        PatternsPerMemory(
            kind,
            len(drawn[kind]),
            sum(each[address] > 0 for address in drawn[kind]),
            sum(each[address] for address in drawn[kind]),
        )
        for kind in KINDS.values()
        if kind in drawn
    )
