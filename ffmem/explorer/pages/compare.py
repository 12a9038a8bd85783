"""Studies side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response

from ffmem.analyses.drift.record import MemoryComparison
from ffmem.analyses.search import MOST_SAVED
from ffmem.errors import ModelError, StoreError
from ffmem.explorer.answers import Answer, download
from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.queries.compare import (
    comparison,
    comparison_charts,
    comparison_picture,
    memory_rows,
    studies_beside,
)
from ffmem.explorer.query_parameters import EmptyIsNone, FigureName
from ffmem.explorer.security import sandbox_headers
from ffmem.explorer.templating import page
from ffmem.records import as_csv
from ffmem.report.comparison import Comparison

LINK = ("Compare", "/compare")
PAGE = 25  # memories on a page
router = APIRouter()


@router.get("/compare", include_in_schema=False)
def compare_page(request: Request, context: TheStudy) -> HTMLResponse:
    """The claims and figures of all studies that the explorer was opened with."""
    beside = [] if context.others else [quote(str(one)) for one in studies_beside(context)]
    return page(
        request,
        "compare.html.j2",
        view=comparison(context),
        folder=quote(str(context.folder)),
        beside=beside,
    )


@dataclass(frozen=True)
class Pair:
    """Which two studies, and how they are compared memory by memory."""

    other: int
    match: bool
    weights: bool
    layer: int | None

    async def rows(self, context: StudyContext, rows: slice) -> MemoryComparison:
        """Some rows of the comparison; the model waits for its turn where weights are read."""
        chosen = (context, self.other, self.match, self.layer, rows)
        if self.weights:
            return await context.live.ask(lambda model: memory_rows(*chosen, model))
        return await run_in_threadpool(memory_rows, *chosen)


async def _parse_pair(
    other: Annotated[int, Query(ge=0, le=100, alias="with", description="Study, from 0.")] = 0,
    match: Annotated[bool, Query(description="Match by triggers instead of by address.")] = False,
    weights: Annotated[
        bool, Query(description="Load both models for the angles of keys and values.")
    ] = False,
    layer: Annotated[int | None, Query(ge=1, le=10_000), EmptyIsNone()] = None,
) -> Pair:
    """The comparison in a request's query."""
    return Pair(other, match, weights and not match, layer)


ThePair = Annotated[Pair, Depends(_parse_pair)]
Start = Annotated[int, Query(ge=0, le=100_000_000, description="Number of the first row.")]


@router.get("/compare/memories", include_in_schema=False)
async def compare_memories_page(
    request: Request, context: TheStudy, pair: ThePair, first: Start = 0
) -> HTMLResponse:
    """Two scans memory by memory."""
    view, wrong = await _shown_rows(context, pair, slice(first, first + PAGE))
    return page(request, "drift.html.j2", view=view, wrong=wrong, asked=pair, size=PAGE)


async def _shown_rows(
    context: StudyContext, pair: Pair, rows: slice
) -> tuple[MemoryComparison | None, str]:
    """Some rows, and what stands beside the form: no common text, or a model that is not there."""
    try:
        return await pair.rows(context, rows), ""
    except (StoreError, ModelError) as error:
        if not pair.weights:
            return None, str(error)
        found, _ = await _shown_rows(context, replace(pair, weights=False), rows)
        return found, str(error)


@router.get("/compare/memories.csv", include_in_schema=False)
async def compare_memories_table(context: TheStudy, pair: ThePair) -> Response:
    """The same as a table, up to ten thousand memories."""
    found = await pair.rows(context, slice(0, MOST_SAVED))
    text = await run_in_threadpool(as_csv, found.drifts or found.matches)
    return download(text, "memories.csv")


@router.get("/api/compare/memories", tags=["study"], response_model=MemoryComparison)
async def compare_memories_data(
    context: TheStudy,
    pair: ThePair,
    first: Start = 0,
    count: Annotated[int, Query(ge=1, le=500)] = PAGE,
) -> Answer:
    """Which memories moved between two scans of one shape, or which match by their triggers."""
    return Answer(await pair.rows(context, slice(first, first + count)))


@router.get("/compare/{name}.svg", include_in_schema=False)
def compare_picture(context: TheStudy, name: FigureName) -> Response:
    """One figure of all studies as a picture."""
    drawn = comparison_picture(context, name)
    if drawn is None:
        raise HTTPException(404, f"the studies have no figure {name!r} in common")
    return Response(drawn, media_type="image/svg+xml", headers=sandbox_headers())


@router.get("/api/compare", tags=["study"], response_model=Comparison)
def compare_data(context: TheStudy) -> Answer:
    """Each study's verdict on every claim of the paper, and the figures they share."""
    return Answer(comparison(context))


@router.get("/api/compare/{name}", tags=["study"], response_model=dict[str, Any])
def compare_figure_data(context: TheStudy, name: FigureName) -> Answer:
    """One figure of all studies on one scale, as a Vega-Lite specification with its numbers."""
    chart = comparison_charts(context).get(name)
    if chart is None:
        raise HTTPException(404, f"the studies have no figure {name!r} in common")
    return Answer(chart)
