"""What the model says of one memory; fetched by the memory's page when a person asks for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from ffmem.errors import LiveError
from ffmem.explorer.context import EmptyIsNone, StudyContext, TheStudy
from ffmem.explorer.pages.memory import AddressText, Shown
from ffmem.explorer.queries.coefficients import (
    Coefficients,
    ColouredText,
    kept_coefficients,
    model_coefficients,
    text_coefficients,
)
from ffmem.explorer.queries.live_memory import (
    Change,
    EditKind,
    EffectView,
    KeyView,
    Nearest,
    TriggerSaliency,
    describe,
    effect_view,
    key_view,
    nearest,
    trigger_saliency,
)
from ffmem.explorer.queries.memory import cell_of
from ffmem.explorer.queries.prompt import LARGEST, LONGEST_TEXT
from ffmem.store.memory_page import page_sentences
from ffmem.store.slots import TRIGGERS_SHOWN

router = APIRouter(prefix="/api/memories/{address}", tags=["live"])
WATCHED = 10  # tokens of a value that are watched, as in the causal analysis
Few = Annotated[int, Query(ge=1, le=50)]


@router.get("/coefficients")
async def memory_coefficients(
    explored: TheStudy,
    address: AddressText,
    triggers: Shown = TRIGGERS_SHOWN,
    load: Annotated[bool, Query(description="Load the model if it is not there yet.")] = False,
) -> Coefficients:
    """The memory's coefficient at every token of the sentences on its page."""
    cell, store = cell_of(explored, address), explored.store
    sentences = page_sentences(store, cell, triggers)
    kept = kept_coefficients(store, cell, sentences)
    if not sentences or not (load or explored.live.ready):
        return kept
    try:
        return await explored.live.ask(lambda m: model_coefficients(m, store, cell, sentences))
    except LiveError:
        if kept.source is None:
            raise
        return kept


@router.get("/text")
async def memory_text(
    explored: TheStudy,
    address: AddressText,
    text: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT)],
) -> ColouredText:
    """The memory's coefficient at every token of any text."""
    cell = cell_of(explored, address)
    return await explored.live.ask(lambda model: text_coefficients(model, cell, text))


@router.get("/saliency")
async def memory_saliency(
    explored: TheStudy,
    address: AddressText,
    trigger: Annotated[int, Query(ge=1, le=65_536, description="Its rank, from 1.")] = 1,
) -> TriggerSaliency:
    """How the coefficient changes, in percent, when each token of one trigger is removed."""
    cell = cell_of(explored, address)
    return await explored.live.ask(lambda m: trigger_saliency(m, explored.store, cell, trigger))


@router.get("/nearest")
async def memory_nearest(explored: TheStudy, address: AddressText, count: Few = 8) -> Nearest:
    """The memories of all layers whose keys, and whose values, point most nearly the same way."""
    cell = cell_of(explored, address)
    found = await explored.live.ask(lambda m: nearest(m, explored.store, cell, count))
    return describe(explored.lookup, found)


@router.get("/key")
async def memory_key(
    explored: TheStudy,
    address: AddressText,
    wakes: Annotated[
        str | None,
        Query(max_length=40, description="A later memory, for the link v . k."),
        EmptyIsNone(),
    ] = None,
    count: Few = 10,
) -> KeyView:
    """Tokens whose embedding is nearest to the key, and the value's link to a later key."""
    cell = cell_of(explored, address)
    return await explored.live.ask(lambda m: key_view(m, cell, wakes, count))


@router.get("/effect")
async def memory_effect(
    explored: TheStudy,
    address: AddressText,
    edit: Annotated[EditKind, Query()] = "silence",
    amount: Annotated[
        float,
        Query(ge=-LARGEST, le=LARGEST, description="Times, or what to hold it at."),
    ] = 0.0,
    triggers: Few = 5,
) -> EffectView:
    """What happens to the next token when the memory is changed at its strongest triggers."""
    return await ask_for_effect(explored, address, Change(edit, amount), triggers)


@router.get("/silenced")
async def silence_memory(explored: TheStudy, address: AddressText, triggers: Few = 5) -> EffectView:
    """What happens to the next token when the memory is silenced at its strongest triggers."""
    return await ask_for_effect(explored, address, Change(), triggers)


async def ask_for_effect(
    explored: StudyContext, address: str, change: Change, triggers: int
) -> EffectView:
    """Run the model as it is, with the change, and with the control's."""
    cell = cell_of(explored, address)
    watched = [push.token for push in explored.lookup.value_tokens(cell, count=WATCHED)]
    found = await explored.live.ask(
        lambda m: effect_view(m, explored.store, cell, (watched, triggers), change)
    )
    if found is None:
        raise HTTPException(404, f"nothing in the corpus fires {cell}, so it cannot be changed")
    return found
