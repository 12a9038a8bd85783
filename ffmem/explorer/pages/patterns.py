"""Patterns on request: searches in the background that pages start and watch."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path

from ffmem.errors import AddressError
from ffmem.explorer.context import TheStudy
from ffmem.explorer.live_model import PatternJob
from ffmem.explorer.pages.memory import AddressText
from ffmem.explorer.pages.search import Asked, find_memories
from ffmem.explorer.queries.memory import cell_of
from ffmem.explorer.queries.pattern_results import explanation_by_llm, first_cells_of

router = APIRouter(prefix="/api", tags=["patterns"])
MOST_KEYS = 500  # of one search; a key takes about a second
JobNumber = Annotated[int, Path(ge=1, le=1_000_000)]


@router.post("/memories/{address}/patterns")
async def find_patterns_of_memory(explored: TheStudy, address: AddressText) -> PatternJob:
    """Begin to look for patterns among the triggers of one memory."""
    cell = cell_of(explored, address)
    return explored.jobs.start([cell], f"patterns of {cell}")


@router.post("/memories/{address}/explanation")
async def explain_memory(explored: TheStudy, address: AddressText) -> PatternJob:
    """Begin to ask a language model for the patterns of one memory, and to score what it says."""
    cell = cell_of(explored, address)
    work = explanation_by_llm(explored, asyncio.get_running_loop())
    return explored.jobs.start([cell], f"explanation of {cell}", work)


@router.post("/layers/{layer}/patterns")
async def find_patterns_of_layer(
    explored: TheStudy, layer: Annotated[int, Path(ge=1, le=10_000)]
) -> PatternJob:
    """Begin to look for patterns of a layer's memories, the most telling values first."""
    if layer not in explored.store.memories:
        known = ", ".join(map(str, explored.store.memories))
        raise AddressError(f"the scan has no layer {layer}; its layers are {known}")
    inside = explored.store.cells.rows_of(layer)
    order = explored.lookup.statistic("probability")[inside].argsort()[::-1] + inside.start
    keys = first_cells_of(explored.store, order.tolist(), MOST_KEYS)
    return explored.jobs.start(keys, f"patterns of layer {layer}")


@router.post("/search/patterns")
async def find_patterns_of_search(explored: TheStudy, question: Asked) -> PatternJob:
    """Begin to look for patterns of the memories that a search finds, the first ones first."""
    found = await find_memories(explored, question, 0, MOST_KEYS)
    cells = [cell_of(explored, hit.address) for hit in found.hits if hit.fires]
    return explored.jobs.start(cells, f"patterns of {found.total} memories found by {question}")


@router.get("/jobs/{number}")
async def job_data(explored: TheStudy, number: JobNumber) -> PatternJob:
    """How far a search for patterns is."""
    found = explored.jobs.job(number)
    if found is None:
        raise HTTPException(404, f"there is no search {number}; start one on a memory's page")
    return found


@router.delete("/jobs/{number}")
async def stop_job(explored: TheStudy, number: JobNumber) -> PatternJob:
    """Stop a search for patterns; what it has found stays."""
    explored.jobs.stop(number)
    return await job_data(explored, number)
