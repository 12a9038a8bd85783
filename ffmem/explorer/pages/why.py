"""Why this token: the strongest memories of a prompt, predicted and silenced one by one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from ffmem.annotations.memory_notes import with_notes
from ffmem.corpus.conversations import question_text
from ffmem.explorer.answers import Answer, picture_of
from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.query_parameters import InChat, PromptPosition, PromptText, PromptToken
from ffmem.memories.prompt_answer import PromptQuestion
from ffmem.memories.why.answer import why
from ffmem.memories.why.record import Why
from ffmem.models.language_model import LanguageModel

PAIRS = 20  # pairs of memory and place that are silenced, and as many random ones
MOST_PAIRS = 100
router = APIRouter()


async def parse_question(
    text: PromptText,
    position: PromptPosition = None,
    token: PromptToken = None,
    chat: InChat = False,
) -> PromptQuestion:
    """The question in a request's query."""
    return PromptQuestion(text, position, token, chat)


TheQuestion = Annotated[PromptQuestion, Depends(parse_question)]


@router.get("/api/why", tags=["live"], response_model=Why)
async def why_data(
    context: TheStudy,
    asked: TheQuestion,
    top: Annotated[int, Query(ge=1, le=MOST_PAIRS, description="Pairs that are silenced.")] = PAIRS,
) -> Answer:
    """The memories that make a token: direct, predicted and true effects, and the trust in them."""
    found = await _ask(context, asked, top)
    return Answer(await run_in_threadpool(with_notes, found, context.store))


@router.get("/api/why/graph.svg", include_in_schema=False)
async def why_graph(context: TheStudy, asked: TheQuestion) -> Response:
    """Which earlier memories wake the strongest ones."""
    from ffmem.figures.why import edge_graph  # here: charts are slow to import

    found = await _ask(context, asked, PAIRS, edges=True)
    return await run_in_threadpool(lambda: picture_of(edge_graph(found), "why"))


async def _ask(context: StudyContext, asked: PromptQuestion, top: int, edges: bool = False) -> Why:
    def answer(model: LanguageModel) -> Why:
        text = asked.text
        if asked.chat:
            text = question_text(text, model.tokenizer, model.name)
        return why(model, text, asked.token, position=asked.position, top=top, edges=edges)

    return await context.live.ask(answer)
