"""Find memories: the form with its table, the same as JSON and as CSV."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from ffmem.address import Address, Sign
from ffmem.analyses.inputs.phrase_coefficients import firing_on
from ffmem.analyses.matches import By, Question, Results, Sort, check_layer, results_of
from ffmem.analyses.search import MOST_HITS, MOST_SAVED, NOT_IN_TABLES, SearchAnswer, answer
from ffmem.errors import ConditionError
from ffmem.explorer.answers import Answer, JsonText, download
from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.page_queue import render_page
from ffmem.explorer.query_parameters import EmptyIsNone
from ffmem.explorer.templating import fill_template
from ffmem.memories.edits import set_text
from ffmem.records import as_csv, json_line
from ffmem.store.search.columns import CONDITIONS_PATTERN
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.search.matching_cells import Matches

LINK = ("Search", "/search")
PAGE = 25  # memories on a page
OF_A_WORD = 8  # memories that fire on a word, and as many that promote it
MOST_EXPLAINED = 500  # memories of an answer that come with their evidence
SEARCH_SECONDS = 0.1  # seconds within which hits should be there
PHRASES = 8  # of which it is kept what fires on them
CACHE_PAGES = 512  # pages of hits that are kept, about 20 kB each
# Answers take a few milliseconds, about what it costs to hand them to a thread; so they are async.
router = APIRouter()


Percent = Annotated[float | None, Query(ge=0, le=100, description="In percent.")]


async def parse_question(  # noqa: PLR0913 - one parameter a thing to choose
    by: Annotated[
        By | None, Query(description="What `q` is, or which memories."), EmptyIsNone()
    ] = None,
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
    sign: Annotated[Sign, Query(description="Of a gated memory.")] = "",
    fires_from: Annotated[Percent, EmptyIsNone()] = None,
    fires_to: Annotated[Percent, EmptyIsNone()] = None,
    agrees: Annotated[Percent, EmptyIsNone()] = None,
    kind: Annotated[str, Query(max_length=40, description="Class of the weights.")] = "",
    clear: Annotated[bool, Query(description="Only what a person would name for it.")] = False,
) -> Question:
    """The question in a request's query; without a kind it is about values, or any memory's."""
    if by == "any" and q.strip():
        by = "words"
    if by == "dead" and q.strip():
        raise ConditionError("a memory that never fires has no words; leave the text empty")
    return Question(
        by or "promotes",
        q,
        layer,
        sort,
        reverse,
        where,
        sign,
        fires_from,
        fires_to,
        agrees,
        kind.strip(),
        clear,
    )


QuestionQuery = Annotated[Question, Depends(parse_question)]
First = Annotated[int, Query(ge=0, le=MOST_HITS, description="Number of the first hit, from 0.")]
Count = Annotated[int, Query(ge=1, le=500, description="Hits in the answer, at most.")]


@router.get("/api/search", tags=["memories"], response_model=SearchAnswer)
async def search_data(
    request: Request,
    context: TheStudy,
    question: QuestionQuery,
    first: First = 0,
    count: Count = PAGE,
) -> Response:
    """Memories that answer a question, with their statistics."""
    if question.by == "phrase":
        return Answer(await find_memories(context, question, first, count))
    check_layer(context.store, question.layer)
    return await render_page(
        request, SEARCH_SECONDS, _search_json, question, first, count, kind=JsonText
    )


@router.get("/search", include_in_schema=False)
async def search_page(
    request: Request,
    context: TheStudy,
    question: QuestionQuery,
    by: Annotated[str, Query()] = "",
    first: First = 0,
) -> Response:
    """The form, and the table of what is found; two of them for a word without a kind."""
    check_layer(context.store, question.layer)
    if not by:
        return await render_page(request, SEARCH_SECONDS, word_text, question)
    if question.by != "phrase":
        return await render_page(request, SEARCH_SECONDS, _search_text, question, first)
    firing = await _firing_memories(context, question.text)
    return HTMLResponse(_search_text(request.app, request.scope["path"], question, first, firing))


def _search_json(app: FastAPI, _: str, question: Question, first: int, count: int) -> str:
    """The same answer as data."""
    context: StudyContext = app.state.context
    text = _json_text if count <= PAGE else _json_text.__wrapped__
    return text(context, question, first, count, results_of(context.search))


def _search_text(
    app: FastAPI, path: str, question: Question, first: int, firing: Matches | None = None
) -> str:
    """The page's text; `firing` is what the model said of a phrase."""
    context: StudyContext = app.state.context
    if firing is not None:  # large, so not kept
        return _fill(app, path, question, answer(context.search, question, first, PAGE, firing))
    return _page_text((app, context, path), question, first, results_of(context.search))


def word_text(app: FastAPI, path: str, question: Question) -> str:
    """The page about a word: which memories fire on it, and which promote it."""
    context: StudyContext = app.state.context
    return _word_text((app, context, path), question, results_of(context.search))


# People come back to the pages of a search; results that have changed make another text.
@lru_cache(maxsize=CACHE_PAGES)
def _json_text(
    context: StudyContext, question: Question, first: int, count: int, _: Results
) -> str:
    return json_line(answer(context.search, question, first, count))


@lru_cache(maxsize=CACHE_PAGES)
def _page_text(
    where: tuple[FastAPI, StudyContext, str], question: Question, first: int, _: Results
) -> str:
    app, context, path = where
    return _fill(app, path, question, answer(context.search, question, first, PAGE))


@lru_cache(maxsize=CACHE_PAGES)
def _word_text(where: tuple[FastAPI, StudyContext, str], question: Question, _: Results) -> str:
    app, context, path = where
    kinds: tuple[By, ...] = ("words", "promotes")
    questions = [replace(question, by=kind, clear=True) for kind in kinds]
    return _fill(
        app, path, question, *(answer(context.search, one, 0, OF_A_WORD) for one in questions)
    )


def _fill(app: FastAPI, path: str, question: Question, *answers: SearchAnswer) -> str:
    """The page of one answer, or of those about a word."""
    context: StudyContext = app.state.context
    index = context.lookup
    pieces = [] if index.token_ids(question.text) else index.pieces(question.text)
    return fill_template(
        app,
        path,
        "search.html.j2",
        answers=answers,
        asked=question,
        about_word=len(answers) > 1,
        pieces=pieces if len(answers) > 1 else [],
        most=MOST_HITS,
        size=PAGE,
        signed=context.store.cells.signed,
        kinds_of_weights=_weight_kinds(context.lookup),
    )


def _weight_kinds(lookup: MemoryIndex) -> tuple[str, ...]:
    """The classes of weights that a study has; none where they were not analysed."""
    return _all_kinds(lookup) if lookup.store.folder.weights.exists() else ()


@lru_cache(maxsize=2)
def _all_kinds(lookup: MemoryIndex) -> tuple[str, ...]:
    return tuple(sorted(filter(None, set(lookup.statistic("class").tolist()))))


@router.get("/go", include_in_schema=False)
async def go(context: TheStudy, q: Annotated[str, Query(max_length=400)] = "") -> RedirectResponse:
    """Lead to what the one box was asked for: a memory, a token, words, or their meaning."""
    return RedirectResponse(place_of(context, q.replace("·", " ")), 303)


def place_of(context: StudyContext, text: str) -> str:
    """The page for an address in any spelling, for a token, or for words."""
    address = Address.guess(text)
    has_letter = not text.strip()[:1].isdigit()
    if address is not None and (has_letter or address.layer in context.store.memories):
        return f"/memory/{quote(str(address))}"
    if not text.strip():
        return "/search"
    index = context.lookup
    known = index.token_ids(text.strip()) or index.trigger_words.with_words(text).total
    return f"/search?{urlencode({'by': '' if known else 'meaning', 'q': text})}"


@router.get("/search.csv", include_in_schema=False)
async def search_file(context: TheStudy, question: QuestionQuery) -> Response:
    """All that is found, up to ten thousand memories, as a table to download."""
    found = await find_memories(context, question, 0, MOST_SAVED)
    text = await run_in_threadpool(as_csv, found.hits, NOT_IN_TABLES)
    return download(text, "memories.csv")


@router.get("/search.txt", include_in_schema=False)
async def search_set(context: TheStudy, question: QuestionQuery) -> Response:
    """The addresses of all that is found, as a set of memories for `--set @FILE`."""
    found = await find_memories(context, question, 0, MOST_SAVED)
    addresses = dict.fromkeys(Address.parse(hit.address) for hit in found.hits)
    text = set_text(addresses, f"{len(addresses)} memories found in the explorer")
    return download(text, "memories.txt")


async def find_memories(
    context: StudyContext, question: Question, first: int, count: int
) -> SearchAnswer:
    """The answer, by the tables or, for what fires on a phrase, by the model."""
    check_layer(context.store, question.layer)
    firing = None
    if question.by == "phrase":
        firing = await _firing_memories(context, question.text)
    return answer(context.search, question, first, count, firing, count <= MOST_EXPLAINED)


async def _firing_memories(context: StudyContext, phrase: str) -> Matches:
    """What the model says of a phrase; asked once, then kept, so that pages of it are quick."""
    known = context.firing
    if not phrase.strip():
        return Matches.nothing()
    if phrase not in known:
        found = await context.live.ask(lambda model: firing_on(model, context.store, phrase))
        while len(known) >= PHRASES:
            known.pop(next(iter(known)))
        known[phrase] = found
    return known[phrase]
