"""The study at a glance, its layers as a map, and its figures."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse

from ffmem.explorer.explored import TheStudy
from ffmem.explorer.queries.overview import Overview, overview
from ffmem.explorer.rendering import page

LINK = ("Overview", "/")
router = APIRouter()


@router.get("/", include_in_schema=False)
def overview_page(request: Request, explored: TheStudy) -> HTMLResponse:
    """The first page."""
    return page(request, "overview.html.j2", view=overview(explored))


@router.get("/api/overview", tags=["study"])
def overview_data(explored: TheStudy) -> Overview:
    """What was scanned, every layer in a line, and which analyses and figures there are."""
    return overview(explored)


@router.get("/figures/{name}.{ending}", include_in_schema=False)
def figure_file(explored: TheStudy, name: str, ending: str) -> FileResponse:
    """One figure of the study as it lies in its folder."""
    path = explored.results.figure(name, ending) if ending in ("svg", "png", "csv") else None
    if path is None or not path.is_file():
        raise HTTPException(404, f"there is no figure {name}.{ending} in this study")
    return FileResponse(path)
