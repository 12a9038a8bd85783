"""Studies side by side."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, Response

from ffmem.explorer.context import EmptyIsNone, TheStudy
from ffmem.explorer.pages.overview import Name
from ffmem.explorer.queries.compare import (
    CompareView,
    MemoriesView,
    compare_figure,
    compare_view,
    comparison_picture,
    memories_view,
)
from ffmem.explorer.templating import page

LINK = ("Compare", "/compare")
PAGE = 25  # memories on a page
router = APIRouter()


@router.get("/compare", include_in_schema=False)
def compare_page(request: Request, explored: TheStudy) -> HTMLResponse:
    """The claims and figures of all studies that the explorer was opened with."""
    return page(request, "compare.html.j2", view=compare_view(explored), folder=explored.folder)


Other = Annotated[int, Query(ge=0, le=100, alias="with", description="Which study, from 0.")]
Layer = Annotated[int | None, Query(ge=1, le=10_000), EmptyIsNone()]
Match = Annotated[bool, Query(description="Match by triggers instead of by address.")]
Start = Annotated[int, Query(ge=0, le=100_000_000, description="Number of the first row.")]


@router.get("/compare/memories", include_in_schema=False)
def compare_memories_page(  # noqa: PLR0913 - one parameter a thing to choose
    request: Request,
    explored: TheStudy,
    other: Other = 0,
    match: Match = False,
    layer: Layer = None,
    first: Start = 0,
) -> HTMLResponse:
    """Two scans memory by memory."""
    view = memories_view(explored, other, match, layer, slice(first, first + PAGE))
    asked = {"with": other, "match": match, "layer": layer}
    return page(request, "drift.html.j2", view=view, asked=asked, size=PAGE)


@router.get("/api/compare/memories", tags=["study"])
def compare_memories_data(  # noqa: PLR0913 - one parameter a thing to choose
    explored: TheStudy,
    other: Other = 0,
    match: Match = False,
    layer: Layer = None,
    first: Start = 0,
    count: Annotated[int, Query(ge=1, le=500)] = PAGE,
) -> MemoriesView:
    """Which memories moved between two scans of one shape, or which match by their triggers."""
    return memories_view(explored, other, match, layer, slice(first, first + count))


@router.get("/compare/{name}.svg", include_in_schema=False)
def compare_picture(explored: TheStudy, name: Name) -> Response:
    """One figure of all studies as a picture."""
    drawn = comparison_picture(explored, name)
    if drawn is None:
        raise HTTPException(404, f"the studies have no figure {name!r} in common")
    return Response(drawn, media_type="image/svg+xml")


@router.get("/api/compare", tags=["study"])
def compare_data(explored: TheStudy) -> CompareView:
    """Every claim of the paper with each study's number, and the figures they share."""
    return compare_view(explored)


@router.get("/api/compare/{name}", tags=["study"])
def compare_figure_data(explored: TheStudy, name: Name) -> dict[str, Any]:
    """One figure of all studies on one scale, as a Vega-Lite specification with its numbers."""
    figure = compare_figure(explored, name)
    if figure is None:
        raise HTTPException(404, f"the studies have no figure {name!r} in common")
    return figure.spec
