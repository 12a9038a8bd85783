"""Find memories: the form with its table, the same as JSON and as CSV."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse

from ffmem.errors import AddressError
from ffmem.explorer.explored import Explored, TheStudy
from ffmem.explorer.queries.search import MOST, Answer, By, Question, Sort, answer
from ffmem.explorer.queries.tables import as_csv
from ffmem.explorer.rendering import page

LINK = ("Search", "/search")
PAGE = 50  # memories on a page
router = APIRouter()


async def asked(
    by: Annotated[By, Query(description="What `q` is, or which memories.")] = "promotes",
    q: Annotated[str, Query(max_length=400, description="Token, words, pattern or phrase.")] = "",
    layer: Annotated[int | None, Query(ge=1, le=10_000)] = None,
    sort: Annotated[Sort, Query()] = "score",
    reverse: Annotated[bool, Query()] = False,
) -> Question:
    """The question in a request's query."""
    return Question(by, q, layer, sort, reverse)


Asked = Annotated[Question, Depends(asked)]
First = Annotated[int, Query(ge=0, le=MOST, description="Number of the first hit, from 0.")]
Count = Annotated[int, Query(ge=1, le=500, description="Hits in the answer, at most.")]


@router.get("/api/search", tags=["memories"])
def search_data(
    explored: TheStudy, question: Asked, first: First = 0, count: Count = PAGE
) -> Answer:
    """Memories that answer a question, with their statistics."""
    return answer(explored, checked(explored, question), first, count)


@router.get("/search", include_in_schema=False)
def search_page(
    request: Request, explored: TheStudy, question: Asked, first: First = 0
) -> HTMLResponse:
    """The form, and the table of what is found."""
    found = answer(explored, checked(explored, question), first, PAGE)
    return page(request, "search.html.j2", found=found, asked=question, most=MOST, size=PAGE)


@router.get("/search.csv", include_in_schema=False)
def search_file(explored: TheStudy, question: Asked) -> PlainTextResponse:
    """All that is found, up to ten thousand memories, as a table to download."""
    found = answer(explored, checked(explored, question), 0, MOST)
    headers = {"Content-Disposition": 'attachment; filename="memories.csv"'}
    return PlainTextResponse(as_csv(found.hits), media_type="text/csv", headers=headers)


def checked(explored: Explored, question: Question) -> Question:
    """Refuse a layer that is not there."""
    if question.layer is not None and question.layer not in explored.store.memories:
        known = ", ".join(map(str, explored.store.memories))
        raise AddressError(f"the scan has no layer {question.layer}; its layers are {known}")
    return question
