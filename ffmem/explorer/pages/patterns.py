"""Patterns on request: searches in the background that pages start and watch."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path

from ffmem.errors import AddressError
from ffmem.explorer.context import TheStudy
from ffmem.explorer.live_model import PatternJob
from ffmem.explorer.pages.memory import AddressText
from ffmem.explorer.pages.search import QuestionQuery, find_memories
from ffmem.explorer.queries.memory import cell_of
from ffmem.explorer.queries.pattern_results import explanation_by_llm, first_cells_of

router = APIRouter(prefix="/api", tags=["patterns"])
MOST_KEYS = 500  # of one search; a key takes about a second
JobNumber = Annotated[int, Path(ge=1, le=1_000_000)]


@router.post("/memories/{address}/patterns")
async def find_patterns_of_memory(context: TheStudy, address: AddressText) -> PatternJob:
    """Begin to look for patterns among the triggers of one memory."""
    cell = cell_of(context, address)
    return context.jobs.start([cell], f"patterns of {cell}")


@router.post("/memories/{address}/explanation")
async def explain_memory(context: TheStudy, address: AddressText) -> PatternJob:
    """Begin to ask a language model for the patterns of one memory, and to score what it says."""
    cell = cell_of(context, address)
    work = explanation_by_llm(context, asyncio.get_running_loop())
    return context.jobs.start([cell], f"explanation of {cell}", work)


@router.post("/layers/{layer}/patterns")
async def find_patterns_of_layer(
    context: TheStudy, layer: Annotated[int, Path(ge=1, le=10_000)]
) -> PatternJob:
    """Begin to look for patterns of a layer's memories, the most telling values first."""
    if layer not in context.store.memories:
        known = ", ".join(map(str, context.store.memories))
        raise AddressError(f"the scan has no layer {layer}; its layers are {known}")
    inside = context.store.cells.rows_of(layer)
    order = context.lookup.statistic("probability")[inside].argsort()[::-1] + inside.start
    keys = first_cells_of(context.store, order.tolist(), MOST_KEYS)
    return context.jobs.start(keys, f"patterns of layer {layer}")


@router.post("/search/patterns")
async def find_patterns_of_search(context: TheStudy, question: QuestionQuery) -> PatternJob:
    """Begin to look for patterns of the memories that a search finds, the first ones first."""
    found = await find_memories(context, question, 0, MOST_KEYS)
    cells = [cell_of(context, hit.address) for hit in found.hits if hit.fires]
    return context.jobs.start(cells, f"patterns of {found.total} memories found by {question}")


@router.get("/jobs/{number}")
async def job_data(context: TheStudy, number: JobNumber) -> PatternJob:
    """How far a search for patterns is."""
    found = context.jobs.job(number)
    if found is None:
        raise HTTPException(404, f"there is no search {number}; start one on a memory's page")
    return found


@router.delete("/jobs/{number}")
async def stop_job(context: TheStudy, number: JobNumber) -> PatternJob:
    """Stop a search for patterns; what it has found stays."""
    context.jobs.stop(number)
    return await job_data(context, number)
