"""Why this token: the strongest memories of a prompt, predicted and silenced one by one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from ffmem.annotations.memory_notes import with_notes
from ffmem.corpus.conversations import question_text
from ffmem.explorer.answers import Answer, picture_of
from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.query_parameters import PromptPosition, PromptText, PromptToken
from ffmem.memories.why.answer import why
from ffmem.memories.why.record import Why
from ffmem.models.language_model import LanguageModel

PAIRS = 20  # pairs of memory and place that are silenced, and as many random ones
MOST_PAIRS = 100
router = APIRouter()
Chat = Annotated[bool, Query(description="Put the text into the model's chat template.")]


@router.get("/api/why", tags=["live"], response_model=Why)
async def why_data(  # noqa: PLR0913 - one parameter per thing to choose
    context: TheStudy,
    text: PromptText,
    position: PromptPosition = None,
    token: PromptToken = None,
    chat: Chat = False,
    top: Annotated[int, Query(ge=1, le=MOST_PAIRS, description="Pairs that are silenced.")] = PAIRS,
) -> Answer:
    """The memories that make a token: direct, predicted and true effects, and the trust in them."""
    found = await _ask(context, text, position, token, chat, top)
    return Answer(await run_in_threadpool(with_notes, found, context.store))


@router.get("/api/why/graph.svg", include_in_schema=False)
async def why_graph(
    context: TheStudy,
    text: PromptText,
    position: PromptPosition = None,
    token: PromptToken = None,
    chat: Chat = False,
) -> Response:
    """Which earlier memories wake the strongest ones."""
    from ffmem.figures.why import edge_graph  # here: charts are slow to import

    found = await _ask(context, text, position, token, chat, PAIRS, edges=True)
    return await run_in_threadpool(lambda: picture_of(edge_graph(found), "why"))


async def _ask(  # noqa: PLR0913 - the parameters of a route
    context: StudyContext,
    text: str,
    position: int | None,
    token: int | None,
    chat: bool,
    top: int,
    edges: bool = False,
) -> Why:
    def answer(model: LanguageModel) -> Why:
        words = question_text(text, model.tokenizer, model.name) if chat else text
        return why(model, words, token, position=position, top=top, edges=edges)

    return await context.live.ask(answer)
