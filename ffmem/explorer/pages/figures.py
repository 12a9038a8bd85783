"""A study's figures, as files and as charts that answer the mouse, and its report."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from ffmem.explorer.answers import Answer
from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.figures import (
    analysis_of,
    charts_of_analysis,
    figure_files,
    figure_path,
    figure_view,
    report_text,
)
from ffmem.explorer.query_parameters import FigureName
from ffmem.explorer.security import sandbox_headers
from ffmem.explorer.templating import page
from ffmem.figures.saving import chart_script
from ffmem.report.rendering import fitting_script, page_source

router = APIRouter()
Chapter = Annotated[str, Path(max_length=40, pattern="^[a-z]+$")]


@router.get("/figures/{name}.{ending}", include_in_schema=False)
def figure_file(context: TheStudy, name: FigureName, ending: str) -> FileResponse:
    """One figure as it lies in the study's folder."""
    path = figure_path(context, name, ending)
    if path is None:
        raise HTTPException(404, f"this study has no figure {f'{name}.{ending}'!r}")
    return FileResponse(path, headers=sandbox_headers())


@router.get("/report", include_in_schema=False)
@router.get("/report.html", include_in_schema=False)
def report_page(context: TheStudy) -> HTMLResponse:
    """The report as it lies in the study's folder; its memories lead to their pages here."""
    found = report_text(context)
    if found is None:
        raise HTTPException(404, "this study has no report yet; `ffmem report DIR` writes it")
    return HTMLResponse(found, headers=sandbox_headers(page_source()))


@router.get("/report/{name}.html", include_in_schema=False)
def report_chapter(context: TheStudy, name: Chapter) -> HTMLResponse:
    """A chapter of the report, likewise."""
    found = report_text(context, name)
    if found is None:
        raise HTTPException(404, f"this study's report has no chapter {name!r}")
    return HTMLResponse(found, headers=sandbox_headers(page_source()))


@router.get("/figure/{name}", include_in_schema=False)
def figure_page(request: Request, context: TheStudy, name: FigureName) -> HTMLResponse:
    """One figure, large."""
    found = figure_view(context, name)
    if found is None:
        raise HTTPException(404, f"this study has no figure {name!r}")
    others = figure_files(context)
    return page(request, "figure.html.j2", figure=found, others=others)


@router.get("/api/figures/{name}", tags=["study"], response_model=dict[str, Any])
def figure_data(context: TheStudy, name: FigureName) -> Answer:
    """One figure as a Vega-Lite specification, with its numbers."""
    found = charts_of_analysis(context, analysis_of(context, name)).get(name)
    if found is None:
        raise HTTPException(404, f"this study has no figure {name!r}")
    return Answer(found)


@router.get("/vega.js", include_in_schema=False)
def vega() -> Response:
    """The library that draws figures; it lies in the installed package, not elsewhere."""
    headers = {"Cache-Control": "max-age=86400"}
    return Response(chart_script(), media_type="text/javascript", headers=headers)


@router.get("/fit.js", include_in_schema=False)
def fit() -> Response:
    """What makes figures as wide as their place, as in the report."""
    return Response(fitting_script(), media_type="text/javascript")
