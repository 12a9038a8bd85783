"""What every page asks: the store, its quick tables, its analyses, and the model behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from ffmem.explorer.live import LiveModel
from ffmem.explorer.queries.results import Results
from ffmem.store.lookup import Lookup
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True, eq=False)
class Explored:
    """One study, opened for reading by many requests at once."""

    store: ScanStore
    lookup: Lookup
    live: LiveModel

    @property
    def folder(self) -> Path:
        """The study's folder; nothing outside it is ever read."""
        return self.store.folder.root

    @property
    def name(self) -> str:
        """The study as a person calls it: the name of its folder."""
        return self.folder.resolve().name

    @cached_property
    def results(self) -> Results:
        """What analyses have left in the folder."""
        return Results(self.folder)


def explore(
    folder: str | Path,
    model: str | None = None,
    watch: Callable[[str], None] = lambda _part: None,
) -> Explored:
    """Open a study; its quick tables are made if they are not there yet, and `watch` hears of it.

    `model` is loaded when first needed; None takes the model that the scan names.
    """
    store = ScanStore.open(folder)
    return Explored(store, Lookup.open(store, watch), LiveModel(store, model))


async def explored_of(request: Request) -> Explored:
    """The study that the running app shows."""
    found: Explored = request.app.state.explored
    return found


TheStudy = Annotated[Explored, Depends(explored_of)]
