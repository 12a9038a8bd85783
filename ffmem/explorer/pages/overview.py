"""The study at a glance: what was scanned, its layers as a map, its claims and figures."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from ffmem.analyses.catalogue import claims_on
from ffmem.explorer.answers import Answer
from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.overview import Overview, overview
from ffmem.explorer.templating import page

LINK = ("Overview", "/")
router = APIRouter()


@router.get("/", include_in_schema=False)
def overview_page(request: Request, context: TheStudy) -> HTMLResponse:
    """The first page."""
    view = overview(context)
    figures = {name: file.name for file in view.figures for name in claims_on(file.name)}
    return page(request, "overview.html.j2", view=view, figures=figures)


@router.get("/api/overview", tags=["study"], response_model=Overview)
def overview_data(context: TheStudy) -> Answer:
    """What was scanned, every layer in a line, and which analyses and figures there are."""
    return Answer(overview(context))
