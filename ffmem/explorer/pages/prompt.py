"""The prompt under the lens: a form whose answer the page fetches, so that a link says it all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from ffmem.explorer.context import EmptyIsNone, TheStudy
from ffmem.explorer.queries.overview import prompt_examples
from ffmem.explorer.queries.prompt import (
    LONGEST_TEXT,
    MOST_EDITS,
    MOST_NEW_TOKENS,
    PLACED_EDIT_PATTERN,
    PromptAnswer,
    PromptQuestion,
    may_have_wikitext_form,
    prompt_answer,
)
from ffmem.explorer.templating import page

LINK = ("Prompt", "/prompt")
router = APIRouter()
EditText = Annotated[str, Field(max_length=64, json_schema_extra={"pattern": PLACED_EDIT_PATTERN})]


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
        wikitext_form=may_have_wikitext_form(context),
    )


@router.get("/api/prompt", tags=["live"])
async def prompt_data(  # noqa: PLR0913 - one parameter per thing to choose
    context: TheStudy,
    text: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT)],
    position: Annotated[
        int | None,
        Query(
            description="Tokens read, from 1; negative counts from the end.",
            ge=-1_000_000,
            le=1_000_000,
            json_schema_extra={"not": {"const": 0}},
        ),
        EmptyIsNone(),
    ] = None,
    token: Annotated[
        int | None,
        Query(ge=0, le=10_000_000, description="Whose logit is explained."),
        EmptyIsNone(),
    ] = None,
    word: Annotated[str, Query(max_length=64, description="The same as text.")] = "",
    edit: Annotated[
        list[EditText] | None,
        Query(
            description="`L7.1034=0`, `L7.1034*2`, `L7.1034=0@2,5-7` at some tokens; repeatable.",
            max_length=MOST_EDITS,
        ),
    ] = None,
    write: Annotated[
        int, Query(ge=0, le=MOST_NEW_TOKENS, description="Tokens of a continuation.")
    ] = 0,
    chat: Annotated[
        bool, Query(description="Put the text into the model's chat template.")
    ] = False,
    wikitext_form: Annotated[
        bool,
        Query(
            description="False splits the text at white space alone, where a model converted from "
            "fairseq would bring it into WikiText's form."
        ),
    ] = True,
) -> PromptAnswer:
    """Layer by layer what the model predicts, which memories make it, and what changes do."""
    edits = tuple(edit or ())
    question = PromptQuestion(text, position, token, word, edits, write, chat, wikitext_form)
    return await context.live.ask(lambda model: prompt_answer(model, question))
