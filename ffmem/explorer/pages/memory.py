"""One memory: its page, the same as JSON, and the way to the next one."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, FastAPI, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.page_process import render_page
from ffmem.explorer.queries.memory import MemoryView, cell_of, memory_view
from ffmem.explorer.queries.search import as_csv
from ffmem.explorer.templating import fill_template
from ffmem.store.memory_page import memory_page as memory_record
from ffmem.store.slots import TRIGGERS_SHOWN

# Answers take about a millisecond, less than it costs to hand them to a thread; so they are async.
router = APIRouter()
AddressText = Annotated[str, Path(max_length=40, examples=["L7.1034"])]
Shown = Annotated[int, Query(ge=1, le=200, description="Triggers in the answer, at most.")]


@router.get("/memory/{address}", include_in_schema=False)
async def memory_page(
    request: Request, address: AddressText, triggers: Shown = TRIGGERS_SHOWN
) -> HTMLResponse:
    """One memory's page."""
    return await render_page(request, memory_text, address, triggers)


def memory_text(app: FastAPI, path: str, address: str, triggers: int) -> str:
    """The page's text."""
    explored: StudyContext = app.state.explored
    view = memory_view(explored, cell_of(explored, address), triggers)
    return fill_template(app, path, "memory.html.j2", view=view)


@router.get("/memory/{address}/triggers.csv", include_in_schema=False)
async def memory_table(explored: TheStudy, address: AddressText) -> PlainTextResponse:
    """All stored triggers as a table to download."""
    cell = cell_of(explored, address)
    view = memory_view(explored, cell, explored.store.manifest.key.settings["top"])
    headers = {"Content-Disposition": f'attachment; filename="{cell}.csv"'}
    return PlainTextResponse(as_csv(view.triggers), media_type="text/csv", headers=headers)


@router.get("/memory/{address}/picture.svg", include_in_schema=False)
def memory_picture(explored: TheStudy, address: AddressText) -> Response:
    """The memory drawn as in the paper's first figure: what fires the key, what it promotes."""
    from ffmem.figures.memory import memory_chart  # here: charts are slow to import
    from ffmem.figures.saving import picture, spec_of

    cell = cell_of(explored, address)
    svg = picture(spec_of(memory_chart(memory_record(explored.lookup, cell))))
    headers = {"Content-Disposition": f'inline; filename="{cell}.svg"'}
    return Response(svg, media_type="image/svg+xml", headers=headers)


@router.get("/random", include_in_schema=False)
async def random_memory(explored: TheStudy) -> RedirectResponse:
    """Lead to a memory drawn from all of them."""
    row = secrets.randbelow(explored.store.cells.count)
    return RedirectResponse(f"/memory/{explored.store.cells.address(row)}", 303)


@router.get("/api/memories/{address}", tags=["memories"])
async def memory_data(
    explored: TheStudy, address: AddressText, triggers: Shown = TRIGGERS_SHOWN
) -> MemoryView:
    """One memory: triggers, counts, what its value promotes and suppresses, patterns."""
    cell = cell_of(explored, address)
    if explored.has_annotations:  # annotations may lie on another machine
        return await run_in_threadpool(memory_view, explored, cell, triggers)
    return memory_view(explored, cell, triggers)
