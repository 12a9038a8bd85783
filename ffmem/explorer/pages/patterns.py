"""Patterns on request: searches in the background that pages start and watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path

from ffmem.address import Address
from ffmem.annotations.explanations import Lists, explanation
from ffmem.errors import AnnotatorError
from ffmem.explorer.answers import Answer
from ffmem.explorer.context import TheStudy
from ffmem.explorer.pages.search import QuestionQuery, find_memories
from ffmem.explorer.pattern_jobs import PatternJob
from ffmem.explorer.queries.memory import cell_of
from ffmem.explorer.query_parameters import AddressText
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore

router = APIRouter(prefix="/api", tags=["patterns"])
MOST_KEYS = 500  # of one search; a key takes about a second
JobNumber = Annotated[int, Path(ge=1, le=1_000_000)]


@router.post("/memories/{address}/patterns", response_model=PatternJob)
async def find_patterns_of_memory(context: TheStudy, address: AddressText) -> Answer:
    """Begin to look for patterns among the triggers of one memory."""
    cell = cell_of(context, address)
    return Answer(context.jobs.start([cell], f"patterns of {cell}"))


@router.post("/memories/{address}/explanation", response_model=PatternJob)
async def explain_memory(context: TheStudy, address: AddressText) -> Answer:
    """Begin to ask a language model for the patterns of one memory, and to score what it says."""
    cell = cell_of(context, address)
    if context.explainer is None:
        raise AnnotatorError(
            "no language model is there to explain; start the explorer with --llm NAME, and with "
            "--endpoint URL where it is a server's"
        )
    loop = asyncio.get_running_loop()

    def ask_model(question: Callable[[LanguageModel], Lists]) -> Lists:
        """Wait for the live model, in a thread of its own; questions go through the server."""
        return asyncio.run_coroutine_threadsafe(context.live.ask(question), loop).result()

    work = explanation(context.store, context.lookup, context.explainer, ask_model)
    return Answer(context.jobs.start([cell], f"explanation of {cell}", work))


@router.post("/layers/{layer}/patterns", response_model=PatternJob)
async def find_patterns_of_layer(
    context: TheStudy, layer: Annotated[int, Path(ge=1, le=10_000)]
) -> Answer:
    """Begin to look for patterns of a layer's memories, the most telling values first."""
    context.store.cells.check_layer(layer)
    inside = context.store.cells.rows_of(layer)
    order = context.lookup.statistic("probability")[inside].argsort()[::-1] + inside.start
    keys = _first_cells_of(context.store, order.tolist(), MOST_KEYS)
    return Answer(context.jobs.start(keys, f"patterns of layer {layer}"))


@router.post("/search/patterns", response_model=PatternJob)
async def find_patterns_of_search(context: TheStudy, question: QuestionQuery) -> Answer:
    """Begin to look for patterns of the memories that a search finds, the first ones first."""
    found = await find_memories(context, question, 0, MOST_KEYS)
    cells = [cell_of(context, hit.address) for hit in found.hits if hit.fires]
    return Answer(
        context.jobs.start(cells, f"patterns of {found.total} memories found by {question}")
    )


@router.get("/jobs/{number}", response_model=PatternJob)
async def job_data(context: TheStudy, number: JobNumber) -> Answer:
    """How far a search for patterns is."""
    found = context.jobs.job(number)
    if found is None:
        raise HTTPException(404, f"there is no search {number}; start one on a memory's page")
    return Answer(found)


@router.delete("/jobs/{number}", response_model=PatternJob)
async def stop_job(context: TheStudy, number: JobNumber) -> Answer:
    """Stop a search for patterns; what it has found stays."""
    context.jobs.stop(number)
    return await job_data(context, number)


def _first_cells_of(store: ScanStore, rows: Sequence[int], most: int) -> list[Address]:
    """Some cells by their rows, those that nothing fires left out."""
    fires = store.positive_counts
    return store.cells.addresses([int(row) for row in rows if fires[row] > 0][:most])
