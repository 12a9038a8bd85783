"""The prompt under the lens: a form whose answer the page fetches, so that a link says it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response
from pydantic import Field

from ffmem.analyses.lookup.measure import layer_lookup
from ffmem.annotations.memory_notes import with_term_notes
from ffmem.errors import EditError
from ffmem.explorer.answers import Answer, picture_of
from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.start import prompt_examples
from ffmem.explorer.query_parameters import (
    LARGEST_NUMBER,
    InChat,
    PromptPosition,
    PromptText,
    PromptToken,
)
from ffmem.explorer.templating import page
from ffmem.memories.edits import EDIT_PATTERN, Edit
from ffmem.memories.prompt_answer import PromptAnswer, PromptQuestion, prompt_answer
from ffmem.models.language_model import LanguageModel

LINK = ("Prompt", "/prompt")
MOST_NEW_TOKENS = 64  # that a continuation has at most
MOST_EDITS = 256
LARGEST_LAYER = 1_000_000  # in a question; the model says which there are
router = APIRouter()
EditText = Annotated[str, Field(max_length=64, json_schema_extra={"pattern": EDIT_PATTERN})]
EditTexts = Annotated[
    list[EditText] | None,
    Query(
        description="`L7.1034=0`, `L7.1034*2`, `L7.1034=0@2,5-7` at some tokens; repeatable.",
        max_length=MOST_EDITS,
    ),
]


@router.get("/prompt", include_in_schema=False)
def prompt_page(request: Request, context: TheStudy) -> HTMLResponse:
    """The form; what stands in the address is asked at once, by the page itself."""
    live = context.live
    return page(
        request,
        "prompt.html.j2",
        most_written=MOST_NEW_TOKENS,
        model=live.name,
        loaded=live.ready,
        examples=prompt_examples(context),
    )


@router.get("/api/prompt", tags=["live"], response_model=PromptAnswer)
async def prompt_data(  # noqa: PLR0913 - one parameter per thing to choose
    context: TheStudy,
    text: PromptText,
    position: PromptPosition = None,
    token: PromptToken = None,
    word: Annotated[str, Query(max_length=64, description="The same as text.")] = "",
    edit: EditTexts = None,
    write: Annotated[
        int, Query(ge=0, le=MOST_NEW_TOKENS, description="Tokens of a continuation.")
    ] = 0,
    chat: InChat = False,
) -> Answer:
    """Layer by layer what the model predicts, which memories make it, and what changes do."""
    asked = PromptQuestion(text, position, (word or None) if token is None else token, chat, write)

    def answer(model: LanguageModel) -> PromptAnswer:
        return with_term_notes(prompt_answer(model, asked, parse_edits(edit or ())), context.store)

    return Answer(await context.live.ask(answer))


@router.get("/api/prompt/picture.svg", include_in_schema=False)
async def prompt_picture(  # noqa: PLR0913 - one parameter per thing to choose
    context: TheStudy,
    text: PromptText,
    layer: Annotated[int, Query(ge=1, le=LARGEST_LAYER)],
    position: PromptPosition = None,
    edit: EditTexts = None,
    chat: InChat = False,
) -> Response:
    """One layer at this place as in the paper's first figure, keys named by the study."""
    from ffmem.analyses.lookup.charts import lookup_chart  # here: charts are slow to import

    asked, changes = PromptQuestion(text, position, None, chat), parse_edits(edit or ())
    found = await context.live.ask(
        lambda model: layer_lookup(model, asked, layer, context.store, changes)
    )
    return await run_in_threadpool(lambda: picture_of(lookup_chart(found), f"layer-{layer}"))


def parse_edits(texts: Sequence[str]) -> list[Edit]:
    """Edits that are understood and not absurdly large."""
    edits = [Edit.parse(text) for text in texts]
    for edit in edits:
        if abs(edit.amount) > LARGEST_NUMBER:
            raise EditError(f"the number in {edit} is too large; at most {LARGEST_NUMBER:,.0f}")
    return edits
