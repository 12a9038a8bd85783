"""Find memories: the form with its table, the same as JSON and as CSV."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse

from ffmem.address import Address
from ffmem.errors import AddressError
from ffmem.explorer.context import EmptyIsNone, StudyContext, TheStudy
from ffmem.explorer.page_process import render_page
from ffmem.explorer.queries.search import (
    MOST,
    MOST_SAVED,
    Answer,
    By,
    Question,
    Sort,
    answer,
    as_csv,
    firing_on,
)
from ffmem.explorer.templating import fill_template
from ffmem.memories.memory_sets import set_text
from ffmem.store.lookup import Matches
from ffmem.store.weight_columns import CONDITIONS_PATTERN, NUMBERS

LINK = ("Search", "/search")
PAGE = 25  # memories on a page
PHRASES = 8  # whose meaning is kept
# Answers take a few milliseconds, about what it costs to hand them to a thread; so they are async.
router = APIRouter()


async def parse_question(
    by: Annotated[By, Query(description="What `q` is, or which memories.")] = "promotes",
    q: Annotated[str, Query(max_length=400, description="Token, words, pattern or phrase.")] = "",
    layer: Annotated[int | None, Query(ge=1, le=10_000), EmptyIsNone()] = None,
    sort: Annotated[Sort, Query()] = "score",
    reverse: Annotated[bool, Query()] = False,
    where: Annotated[
        str,
        Query(
            max_length=200,
            description="Conditions: class=weakening, value_norm>2.",
            json_schema_extra={"pattern": CONDITIONS_PATTERN},
        ),
    ] = "",
) -> Question:
    """The question in a request's query."""
    return Question(by, q, layer, sort, reverse, where)


Asked = Annotated[Question, Depends(parse_question)]
First = Annotated[int, Query(ge=0, le=MOST, description="Number of the first hit, from 0.")]
Count = Annotated[int, Query(ge=1, le=500, description="Hits in the answer, at most.")]


@router.get("/api/search", tags=["memories"])
async def search_data(
    explored: TheStudy, question: Asked, first: First = 0, count: Count = PAGE
) -> Answer:
    """Memories that answer a question, with their statistics."""
    return await find_memories(explored, question, first, count)


@router.get("/search", include_in_schema=False)
async def search_page(
    request: Request, explored: TheStudy, question: Asked, first: First = 0
) -> HTMLResponse:
    """The form, and the table of what is found."""
    refuse_unknown_layer(explored, question)
    if question.by != "meaning":
        return await render_page(request, search_text, question, first)
    firing = await firing_memories(explored, question.text)
    return HTMLResponse(search_text(request.app, request.scope["path"], question, first, firing))


def search_text(
    app: FastAPI, path: str, question: Question, first: int, firing: Matches | None = None
) -> str:
    """The page's text; `firing` is what the model said of a meaning."""
    found = answer(app.state.explored, question, first, PAGE, firing)
    return fill_template(
        app,
        path,
        "search.html.j2",
        found=found,
        asked=question,
        most=MOST,
        size=PAGE,
        has_weights=app.state.explored.store.folder.weights.exists(),
        weight_columns=NUMBERS,
    )


@router.get("/search.csv", include_in_schema=False)
async def search_file(explored: TheStudy, question: Asked) -> PlainTextResponse:
    """All that is found, up to ten thousand memories, as a table to download."""
    found = await find_memories(explored, question, 0, MOST_SAVED)
    text = await run_in_threadpool(as_csv, found.hits)
    headers = {"Content-Disposition": 'attachment; filename="memories.csv"'}
    return PlainTextResponse(text, media_type="text/csv", headers=headers)


@router.get("/search.txt", include_in_schema=False)
async def search_set(explored: TheStudy, question: Asked) -> PlainTextResponse:
    """The addresses of all that is found, as a set of memories for `--set @FILE`."""
    found = await find_memories(explored, question, 0, MOST_SAVED)
    addresses = dict.fromkeys(Address.parse(hit.address) for hit in found.hits)
    text = set_text(addresses, f"{len(addresses)} memories found in the explorer")
    headers = {"Content-Disposition": 'attachment; filename="memories.txt"'}
    return PlainTextResponse(text, headers=headers)


async def find_memories(
    explored: StudyContext, question: Question, first: int, count: int
) -> Answer:
    """The answer, by the tables or, for the meaning of a phrase, by the model."""
    refuse_unknown_layer(explored, question)
    firing = None
    if question.by == "meaning":
        firing = await firing_memories(explored, question.text)
    return answer(explored, question, first, count, firing)


async def firing_memories(explored: StudyContext, phrase: str) -> Matches:
    """What the model says of a phrase; asked once, then kept, so that pages of it are quick."""
    known = explored.firing
    if not phrase.strip():
        return Matches.nothing()
    if phrase not in known:
        found = await explored.live.ask(lambda model: firing_on(model, explored, phrase))
        while len(known) >= PHRASES:
            known.pop(next(iter(known)))
        known[phrase] = found
    return known[phrase]


def refuse_unknown_layer(explored: StudyContext, question: Question) -> None:
    """A layer that is not there finds nothing, and a person should know why."""
    if question.layer is not None and question.layer not in explored.store.memories:
        known = ", ".join(map(str, explored.store.memories))
        raise AddressError(f"the scan has no layer {question.layer}; its layers are {known}")
