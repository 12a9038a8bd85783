"""The figures of a study, as files and as charts that answer the mouse, and its report."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.figures import (
    analysis_of,
    charts_of_analysis,
    figure_files,
    figure_path,
    figure_view,
    report_file,
)
from ffmem.explorer.templating import page
from ffmem.figures.saving import javascript

router = APIRouter()
Name = Annotated[str, Path(max_length=80, examples=["values-agreement"])]


@router.get("/figures/{name}.{ending}", include_in_schema=False)
def figure_file(explored: TheStudy, name: Name, ending: str) -> FileResponse:
    """One figure as it lies in the study's folder."""
    path = figure_path(explored, name, ending)
    if path is None:
        raise HTTPException(404, f"there is no figure {f'{name}.{ending}'!r} in this study")
    return FileResponse(path)


@router.get("/report", include_in_schema=False)
def report_page(explored: TheStudy) -> HTMLResponse:
    """The report as it lies in the study's folder; its memories lead to their pages here."""
    found = report_file(explored)
    if found is None:
        raise HTTPException(404, "this study has no report yet; `ffmem report DIR` writes it")
    return HTMLResponse(found.page, headers={"Content-Security-Policy": found.policy})


@router.get("/figure/{name}", include_in_schema=False)
def figure_page(request: Request, explored: TheStudy, name: Name) -> HTMLResponse:
    """One figure, large."""
    found = figure_view(explored, name)
    if found is None:
        raise HTTPException(404, f"there is no figure {name!r} in this study")
    others = figure_files(explored)
    return page(request, "figure.html.j2", figure=found, others=others)


@router.get("/api/figures/{name}", tags=["study"])
def figure_data(explored: TheStudy, name: Name) -> dict[str, Any]:
    """One figure as a Vega-Lite specification, with its numbers."""
    found = charts_of_analysis(explored, analysis_of(explored, name)).get(name)
    if found is None:
        raise HTTPException(404, f"there is no figure {name!r} in this study")
    return found


@router.get("/vega.js", include_in_schema=False)
def vega() -> Response:
    """The library that draws figures; it lies in the installed package, not elsewhere."""
    headers = {"Cache-Control": "max-age=86400"}
    return Response(javascript(), media_type="text/javascript", headers=headers)
