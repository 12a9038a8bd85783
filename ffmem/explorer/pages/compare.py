"""Studies side by side."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from ffmem.explorer.context import TheStudy
from ffmem.explorer.pages.figures import Name
from ffmem.explorer.queries.compare import (
    CompareView,
    compare_figure,
    compare_view,
    comparison_picture,
)
from ffmem.explorer.templating import page

LINK = ("Compare", "/compare")
router = APIRouter()


@router.get("/compare", include_in_schema=False)
def compare_page(request: Request, explored: TheStudy) -> HTMLResponse:
    """The claims and figures of all studies that the explorer was opened with."""
    return page(request, "compare.html.j2", view=compare_view(explored))


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
