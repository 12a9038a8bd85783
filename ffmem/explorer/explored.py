"""What every page asks: the study, its quick tables, and the model behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from ffmem.explorer.agreement import agreements
from ffmem.explorer.live import LiveModel
from ffmem.store.lookup import Found, Lookup
from ffmem.store.scan_store import ScanStore
from ffmem.studies.study import Study, open_study


@dataclass(frozen=True, eq=False)
class Explored:
    """One study, opened for reading by many requests at once."""

    study: Study
    lookup: Lookup
    live: LiveModel
    firing: dict[str, Found] = field(default_factory=dict, repr=False)  # on phrases asked before

    @property
    def store(self) -> ScanStore:
        """The scan."""
        return self.study.store

    @property
    def folder(self) -> Path:
        """The study's folder; nothing outside it is ever read."""
        return self.study.folder

    @property
    def name(self) -> str:
        """The study as a person calls it: the name of its folder."""
        return self.folder.resolve().name


def explore(
    folder: str | Path,
    model: str | None = None,
    watch: Callable[[str], None] = lambda _part: None,
) -> Explored:
    """Open a study; its quick tables are made if they are not there yet, and `watch` hears of it.

    `model` is loaded when first needed; None takes the model that the scan names.
    """
    study = open_study(folder)
    lookup = Lookup.open(study.store, watch)
    lookup.warm()
    agreements(study.folder, lookup.cells)  # read once, before the first page waits for it
    return Explored(study, lookup, LiveModel(study.store, model))


async def explored_of(request: Request) -> Explored:
    """The study that the running app shows."""
    found: Explored = request.app.state.explored
    return found


TheStudy = Annotated[Explored, Depends(explored_of)]
