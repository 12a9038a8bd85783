"""One memory: its page, the same as JSON, the way to the next one, and what the model says of it.

The memory's page fetches what the model says when a person asks for it.
"""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from ffmem.analyses.causal.one_memory import CoefficientEdit, EditKind, EffectView, effect_view
from ffmem.analyses.coefficients.page_coefficients import (
    coefficients_from_store,
    model_coefficients,
    text_coefficients,
)
from ffmem.analyses.coefficients.record import ColouredText, PageCoefficients
from ffmem.analyses.removal.saliency import TriggerSaliency, trigger_saliency
from ffmem.analyses.weights.nearest import Nearest, describe, nearest
from ffmem.errors import LiveError
from ffmem.explorer.answers import Answer, download, picture_of
from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.page_queue import render_page
from ffmem.explorer.queries.memory import MemoryAnswer, cell_of, memory_answer
from ffmem.explorer.query_parameters import LARGEST_NUMBER, LONGEST_TEXT, AddressText, EmptyIsNone
from ffmem.explorer.templating import fill_template
from ffmem.memories.folded_weights import KeyView, key_view
from ffmem.memories.value_vectors import ValueView, value_view
from ffmem.records import as_csv
from ffmem.store.memory_page import memory_page as memory_record
from ffmem.store.memory_page import page_sentences
from ffmem.store.slots import TRIGGERS_SHOWN

# Answers take about a millisecond, less than it costs to hand them to a thread; so they are async.
router = APIRouter()
TriggerCount = Annotated[int, Query(ge=1, le=200, description="Triggers in the answer, at most.")]
live = APIRouter(prefix="/api/memories/{address}", tags=["live"])
PAGE_SECONDS = 0.05  # seconds within which the page should be there
VALUE_TOKENS = 10  # tokens of a value that are watched, as in the causal analysis
Few = Annotated[int, Query(ge=1, le=50)]


@router.get("/memory/{address}", include_in_schema=False)
async def memory_page(
    request: Request, address: AddressText, triggers: TriggerCount = TRIGGERS_SHOWN
) -> Response:
    """One memory's page."""
    return await render_page(request, PAGE_SECONDS, _memory_html, address, triggers)


def _memory_html(app: FastAPI, path: str, address: str, triggers: int) -> str:
    """The page's text."""
    context: StudyContext = app.state.context
    found = memory_answer(context, cell_of(context, address), triggers)
    explainer = None if context.explainer is None else context.explainer.name
    return fill_template(
        app, path, "memory.html.j2", found=found, page=found.page, explainer=explainer
    )


@router.get("/memory/{address}/triggers.csv", include_in_schema=False)
async def memory_table(context: TheStudy, address: AddressText) -> Response:
    """All stored triggers as a table to download."""
    cell = cell_of(context, address)
    return download(as_csv(context.store.triggers(cell)), f"{cell}.csv")


@router.get("/memory/{address}/picture.svg", include_in_schema=False)
def memory_picture(context: TheStudy, address: AddressText) -> Response:
    """The memory drawn as in the paper's first figure: what fires the key, what it promotes."""
    from ffmem.figures.memory import memory_chart  # here: charts are slow to import

    cell = cell_of(context, address)
    return picture_of(memory_chart(memory_record(context.lookup, cell)), str(cell))


@router.get("/random", include_in_schema=False)
async def random_memory(context: TheStudy) -> RedirectResponse:
    """Lead to a memory drawn from all of them."""
    row = secrets.randbelow(context.store.cells.count)
    return RedirectResponse(f"/memory/{context.store.cells.address(row)}", 303)


@router.get("/api/memories/{address}", tags=["memories"], response_model=MemoryAnswer)
async def memory_data(
    context: TheStudy, address: AddressText, triggers: TriggerCount = TRIGGERS_SHOWN
) -> Answer:
    """One memory: triggers, counts, what its value promotes and suppresses, patterns."""
    cell = cell_of(context, address)
    if context.has_annotations:  # annotations may lie on another machine
        return Answer(await run_in_threadpool(memory_answer, context, cell, triggers))
    return Answer(memory_answer(context, cell, triggers))


@live.get("/coefficients", response_model=PageCoefficients)
async def memory_coefficients(
    context: TheStudy,
    address: AddressText,
    triggers: TriggerCount = TRIGGERS_SHOWN,
    load: Annotated[bool, Query(description="Load the model if it is not there yet.")] = False,
) -> Answer:
    """The memory's coefficient at every token of the sentences on its page."""
    cell, store = cell_of(context, address), context.store
    sentences = page_sentences(store, cell, triggers)
    kept = coefficients_from_store(store, cell, sentences)
    if not sentences or not (load or context.live.ready):
        return Answer(kept)
    try:
        return Answer(
            await context.live.ask(lambda m: model_coefficients(m, store, cell, sentences))
        )
    except LiveError:
        if kept.source is None:
            raise
        return Answer(kept)


@live.get("/text", response_model=ColouredText)
async def memory_text(
    context: TheStudy,
    address: AddressText,
    text: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT)],
) -> Answer:
    """The memory's coefficient at every token of any text."""
    cell = cell_of(context, address)
    return Answer(await context.live.ask(lambda model: text_coefficients(model, cell, text)))


@live.get("/saliency", response_model=TriggerSaliency)
async def memory_saliency(
    context: TheStudy,
    address: AddressText,
    trigger: Annotated[int, Query(ge=1, le=65_536, description="Its rank, from 1.")] = 1,
) -> Answer:
    """How the coefficient changes, in percent, when each token of one trigger is removed."""
    cell = cell_of(context, address)
    return Answer(
        await context.live.ask(lambda m: trigger_saliency(m, context.store, cell, trigger))
    )


@live.get("/nearest", response_model=Nearest)
async def memory_nearest(context: TheStudy, address: AddressText, count: Few = 8) -> Answer:
    """The memories of all layers whose keys, and whose values, point most nearly the same way."""
    cell = cell_of(context, address)
    found = await context.live.ask(lambda m: nearest(m, context.store, cell, count))
    return Answer(describe(context.lookup, found))


@live.get("/key", response_model=KeyView)
async def memory_key(
    context: TheStudy,
    address: AddressText,
    wakes: Annotated[
        str | None,
        Query(max_length=40, description="A later memory, for the link v . k."),
        EmptyIsNone(),
    ] = None,
    count: Few = 10,
) -> Answer:
    """Tokens whose embedding is nearest to the key, and the value's link to a later key."""
    cell = cell_of(context, address)
    return Answer(await context.live.ask(lambda m: key_view(m, cell, wakes, count)))


@live.get("/value", response_model=ValueView)
async def memory_value(context: TheStudy, address: AddressText, count: Few = 20) -> Answer:
    """Tokens that the value promotes and suppresses most, also where values are not ranked."""
    cell = cell_of(context, address)
    return Answer(await context.live.ask(lambda m: value_view(m, cell, count)))


@live.get("/effect", response_model=EffectView)
async def memory_effect(
    context: TheStudy,
    address: AddressText,
    edit: Annotated[EditKind, Query()] = "silence",
    amount: Annotated[
        float,
        Query(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER, description="Times, or what to hold it at."),
    ] = 0.0,
    triggers: Few = 5,
) -> Answer:
    """What happens to the next token when the memory is changed at its strongest triggers."""
    return Answer(await _ask_for_effect(context, address, CoefficientEdit(edit, amount), triggers))


async def _ask_for_effect(
    context: StudyContext, address: str, change: CoefficientEdit, triggers: int
) -> EffectView:
    """Run the model as it is, with the change, and with the control's."""
    cell = cell_of(context, address)
    watched = [push.token for push in context.lookup.value_tokens(cell, count=VALUE_TOKENS)]
    found = await context.live.ask(
        lambda m: effect_view(m, context.store, cell, (watched, triggers), change)
    )
    if found is None:
        raise HTTPException(404, f"nothing in the corpus fires {cell}, so it cannot be changed")
    return found


router.include_router(live)
