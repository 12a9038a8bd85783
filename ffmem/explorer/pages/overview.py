"""The study at a glance: what was scanned, its layers as a map, its figures."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.figures import figures_of_claims
from ffmem.explorer.queries.overview import Overview, overview
from ffmem.explorer.templating import page

LINK = ("Overview", "/")
router = APIRouter()


@router.get("/", include_in_schema=False)
def overview_page(request: Request, explored: TheStudy) -> HTMLResponse:
    """The first page."""
    view = overview(explored)
    shown = {file.name for file in view.figures}
    figures = {name: one for name, one in figures_of_claims().items() if one in shown}
    return page(request, "overview.html.j2", view=view, figures=figures)


@router.get("/api/overview", tags=["study"])
def overview_data(explored: TheStudy) -> Overview:
    """What was scanned, every layer in a line, and which analyses and figures there are."""
    return overview(explored)
