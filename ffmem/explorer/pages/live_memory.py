"""What the model says of one memory; fetched by the memory's page when a person asks for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from ffmem.explorer.context import EmptyIsNone, TheStudy
from ffmem.explorer.pages.memory import AddressText
from ffmem.explorer.queries.live_memory import (
    KeyView,
    Nearest,
    SilencingView,
    TriggerSaliency,
    key_view,
    nearest,
    silencing_view,
    trigger_saliency,
)
from ffmem.explorer.queries.memory import cell_of

router = APIRouter(prefix="/api/memories/{address}", tags=["live"])
WATCHED = 10  # tokens of a value that are watched, as in the causal analysis
Few = Annotated[int, Query(ge=1, le=50)]


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
    return await explored.live.ask(lambda m: nearest(m, explored.store, cell, count))


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


@router.get("/silenced")
async def silence_memory(
    explored: TheStudy, address: AddressText, triggers: Few = 5
) -> SilencingView:
    """What happens to the next token when the memory is silenced at its strongest triggers."""
    cell = cell_of(explored, address)
    watched = [push.token for push in explored.lookup.value_tokens(cell, count=WATCHED)]
    found = await explored.live.ask(
        lambda m: silencing_view(m, explored.store, cell, watched, triggers)
    )
    if found is None:
        raise HTTPException(404, f"nothing in the corpus fires {cell}, so it cannot be silenced")
    return found
