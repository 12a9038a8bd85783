"""The context of every request: the study, its search index, and the live model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from ffmem.analyses.inputs.related_words import RelatedWords, open_related_words
from ffmem.analyses.matches import NO_WORDS, MemorySearch
from ffmem.analyses.study import Study, open_study
from ffmem.annotations.database import Annotations
from ffmem.annotations.llm_annotator import Explainer
from ffmem.explorer.live_model import LiveModel
from ffmem.explorer.pattern_jobs import PatternJobs
from ffmem.store.memory_page import stored_coefficients
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.columns import agreement_table, weight_row
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.search.matching_cells import Matches


@dataclass(frozen=True, eq=False)
class StudyContext:
    """One study, opened for reading by many requests at once."""

    study: Study
    lookup: MemoryIndex
    live: LiveModel
    database: str | None = None  # of annotations; None is a file in the study's folder
    others: tuple[Study, ...] = ()  # to compare with
    related: RelatedWords = NO_WORDS
    explainer: Explainer | None = None  # a language model that names patterns
    firing: dict[str, Matches] = field(default_factory=dict, repr=False)  # on phrases asked before

    @property
    def store(self) -> ScanStore:
        """The scan."""
        return self.study.store

    @property
    def folder(self) -> Path:
        """The study's folder; outside it only the names of folders beside it are ever read."""
        return self.study.folder

    @cached_property
    def search(self) -> MemorySearch:
        """What a search looks at."""
        return MemorySearch(self.lookup, self.related)

    @cached_property
    def name(self) -> str:
        """The study's display name: the name of its folder."""
        return self.folder.resolve().name

    @property
    def has_annotations(self) -> bool:
        """Whether a database of annotations exists."""
        return self.database is not None or self.store.folder.annotations.exists()

    @cached_property
    def jobs(self) -> PatternJobs:
        """Searches for patterns in the background."""
        return PatternJobs(self.store)

    @cached_property
    def annotations(self) -> Annotations:
        """The annotations; their database is created when first needed."""
        return Annotations.open(self.database or str(self.store.folder.annotations))


def open_context(
    folder: str | Path,
    model: str | None = None,
    watch: Callable[[str], None] = lambda _part: None,
    database: str | None = None,
    others: Sequence[str | Path] = (),
) -> StudyContext:
    """Open a study and build its search index if it is missing; `watch` receives the progress.

    `model` is loaded when first needed; None means the model that the scan names. `database` is the
    annotation database; `others` are studies to compare with.
    """
    if database is not None:  # trouble is told now, not by a page
        Annotations.open(database).close()
    study, beside = open_study(folder), tuple(map(open_study, others))
    lookup = MemoryIndex.open(study.store, watch)
    lookup.warm()
    # Read once, before the first page waits for it.
    agreement_table(study.store.folder, study.store.cells.count)
    stored_coefficients(study.store)
    weight_row(study.store, 0)
    live, related = LiveModel(study.store, model), open_related_words(study.store, watch)
    return StudyContext(study, lookup, live, database, beside, related)


async def _study_context(request: Request) -> StudyContext:
    """The study that the running app shows."""
    found: StudyContext = request.app.state.context
    return found


TheStudy = Annotated[StudyContext, Depends(_study_context)]
