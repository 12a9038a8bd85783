"""One memory: its page, the same as JSON, and the way to the next one."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from ffmem.explorer.explored import Explored, TheStudy
from ffmem.explorer.queries.memory import SHOWN, MemoryView, cell_of, memory_view
from ffmem.explorer.rendering import page

# Answers take about a millisecond, less than it costs to hand them to a thread; so they are async.
router = APIRouter()
AddressText = Annotated[str, Path(max_length=40, examples=["L7.1034"])]
Shown = Annotated[int, Query(ge=1, le=200, description="Triggers in the answer, at most.")]


@router.get("/memory/{address}", include_in_schema=False)
async def memory_page(
    request: Request, explored: TheStudy, address: AddressText, triggers: Shown = SHOWN
) -> HTMLResponse:
    """One memory's page."""
    view = await viewed(explored, address, triggers)
    return page(request, "memory.html.j2", view=view)


@router.get("/random", include_in_schema=False)
async def random_memory(explored: TheStudy) -> RedirectResponse:
    """Lead to a memory drawn from all of them."""
    row = secrets.randbelow(explored.lookup.cells)
    return RedirectResponse(f"/memory/{explored.lookup.one(row)}", 303)


@router.get("/api/memories/{address}", tags=["memories"])
async def memory_data(
    explored: TheStudy, address: AddressText, triggers: Shown = SHOWN
) -> MemoryView:
    """One memory: triggers, counts, what its value promotes and suppresses, patterns."""
    return await viewed(explored, address, triggers)


async def viewed(explored: Explored, address: str, triggers: int) -> MemoryView:
    """The memory; in a thread where annotations are asked too, which may lie on another machine."""
    cell = cell_of(explored, address)
    if explored.is_annotated:
        return await run_in_threadpool(memory_view, explored, cell, triggers)
    return memory_view(explored, cell, triggers)
