"""The paper's protocol as pages: read a key's triggers, say what repeats, saved as you go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ffmem.analyses.patterns.record import MIN_TRIGGERS, PATTERN_KINDS, PatternKind
from ffmem.annotations.agreement import Agreement
from ffmem.annotations.answer_rules import (
    DESCRIPTION_PATTERN,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    NAME_PATTERN,
    check,
    check_name,
    normalise,
)
from ffmem.annotations.sheets import PatternAnswer, Sheet
from ffmem.errors import FfmemError
from ffmem.explorer.answers import Answer
from ffmem.explorer.context import StudyContext, TheStudy
from ffmem.explorer.queries.annotate import (
    Sheets,
    SheetView,
    agreement_of,
    discard,
    draw,
    sheet_by_name,
    sheet_of_memory,
    sheet_view,
    sheets_of,
)
from ffmem.explorer.query_parameters import AddressText
from ffmem.explorer.templating import page
from ffmem.store.slots import TRIGGERS_SHOWN

LINK = ("Annotate", "/annotate")
DISAGREEMENTS = 200  # on the page, at most
router = APIRouter()
SheetName = Annotated[str, Path(pattern="^[a-z0-9-]{1,16}$")]
Annotator = Annotated[
    str, Query(max_length=LONGEST_NAME, pattern=r"^[^\x00]*$", description="Whose answers.")
]


def _refuse_other_types(value: object) -> object:
    """Let numbers pass: JSON has integers, and neither `true` nor `"1"` is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


NUMBER = BeforeValidator(_refuse_other_types)
# The schemas below say what `check` takes, so that it alone refuses and says why.
RANKS_SCHEMA = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": TRIGGERS_SHOWN},
    "minItems": MIN_TRIGGERS,
    "maxItems": TRIGGERS_SHOWN,
    "uniqueItems": True,
}


class PatternInput(BaseModel):
    """One pattern as the page sends it."""

    description: str = Field(
        json_schema_extra={
            "minLength": 1,
            "maxLength": LONGEST_DESCRIPTION,
            "pattern": DESCRIPTION_PATTERN,
        },
        description="A few words; no two patterns of an answer have the same.",
    )
    kind: str = Field(json_schema_extra={"enum": list(PATTERN_KINDS)})
    ranks: Annotated[list[Annotated[int, NUMBER]], WithJsonSchema(RANKS_SCHEMA)]


class AnswerInput(BaseModel):
    """All that an annotator says of a sheet; no pattern says that nothing repeats."""

    annotator: str = Field(
        min_length=1, max_length=LONGEST_NAME, json_schema_extra={"pattern": NAME_PATTERN}
    )
    patterns: list[PatternInput] = Field(max_length=TRIGGERS_SHOWN)


@dataclass(frozen=True)
class SaveResult:
    """An answer is on the disk; `new` is False where it was there already."""

    sheet: str
    new: bool


class Draw(BaseModel):
    """How many keys of each layer, and how many controls of each kind, are drawn."""

    keys: Annotated[int, Field(ge=1, le=200), NUMBER] = 10
    controls: Annotated[int, Field(ge=0, le=50), NUMBER] = 1
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), NUMBER] = 0


@dataclass(frozen=True)
class DrawResult:
    """How many sheets are new."""

    new: int


@dataclass(frozen=True)
class DiscardResult:
    """How many sheets went."""

    discarded: int


@router.get("/annotate", include_in_schema=False)
def annotate_page(request: Request, context: TheStudy, annotator: Annotator = "") -> HTMLResponse:
    """Who are you, how far have you come, and how far the others."""
    name = check_name(annotator) if annotator else ""
    found = sheets_of(context, name)
    layers = len(context.store.memories)
    return page(request, "annotate.html.j2", found=found, annotator=name, layers=layers)


@router.get("/annotate/next", include_in_schema=False)
def next_sheet(context: TheStudy, annotator: Annotator) -> RedirectResponse:
    """Lead to the first sheet that this annotator has not answered."""
    name = check_name(annotator)
    wanted = sheets_of(context, name).next
    path = "/annotate" if wanted is None else f"/annotate/{wanted}"
    return RedirectResponse(f"{path}?{urlencode({'annotator': name})}", 303)


@router.get("/annotate/agreement", include_in_schema=False)
def agreement_page(request: Request, context: TheStudy) -> HTMLResponse:
    """How far annotators agree, and where they do not."""
    return page(request, "agreement.html.j2", view=agreement_of(context), most=DISAGREEMENTS)


@router.get("/annotate/memory/{address}", include_in_schema=False)
def memory_sheet_page(
    request: Request, context: TheStudy, address: AddressText, annotator: Annotator = ""
) -> HTMLResponse:
    """A memory that somebody picked, as a sheet."""
    sheet = sheet_of_memory(context, address)
    return _sheet_response(request, context, sheet, f"/api/memories/{sheet.key}/answer", annotator)


@router.get("/annotate/{name}", include_in_schema=False)
def sheet_page(
    request: Request, context: TheStudy, name: SheetName, annotator: Annotator = ""
) -> HTMLResponse:
    """One drawn sheet."""
    sheet = sheet_by_name(context, name)
    return _sheet_response(request, context, sheet, f"/api/sheets/{name}/answer", annotator)


def _sheet_response(
    request: Request, context: StudyContext, sheet: Sheet, saved_at: str, annotator: str
) -> HTMLResponse:
    """The sheet's page; what was said is fetched by the page itself."""
    name = check_name(annotator) if annotator else ""
    view = sheet_view(context, sheet, "")
    return page(
        request,
        "sheet.html.j2",
        view=view,
        annotator=name,
        saved_at=saved_at,
        least=MIN_TRIGGERS,
        longest=LONGEST_DESCRIPTION,
    )


@router.get("/api/sheets", tags=["annotations"], response_model=Sheets)
def sheets_data(context: TheStudy, annotator: Annotator = "") -> Answer:
    """All drawn sheets, which of them an annotator has answered, and everybody's progress."""
    return Answer(sheets_of(context, annotator))


@router.post("/api/sheets", tags=["annotations"], response_model=DrawResult)
def draw_sheets(context: TheStudy, wanted: Draw) -> Answer:
    """Draw random keys of every layer, with control keys among them, under blind names."""
    return Answer(DrawResult(new=draw(context, wanted.keys, wanted.controls, wanted.seed)))


@router.delete("/api/sheets", tags=["annotations"], response_model=DiscardResult)
def discard_sheets(context: TheStudy) -> Answer:
    """Remove the drawn sheets that nobody has answered."""
    return Answer(DiscardResult(discarded=discard(context)))


@router.get("/api/sheets/{name}/answer", tags=["annotations"], response_model=SheetView)
def sheet_data(context: TheStudy, name: SheetName, annotator: Annotator = "") -> Answer:
    """A sheet's prefixes, and what an annotator last said of it."""
    return Answer(sheet_view(context, sheet_by_name(context, name), annotator))


@router.put("/api/sheets/{name}/answer", tags=["annotations"], response_model=SaveResult)
def answer_sheet(context: TheStudy, name: SheetName, given: AnswerInput) -> Answer:
    """Save an answer; it counts from now on, and older ones are kept."""
    return Answer(save_answer(context, sheet_by_name(context, name), given))


@router.get("/api/agreement", tags=["annotations"], response_model=Agreement)
def agreement_data(context: TheStudy) -> Answer:
    """How far annotators agree; this names the keys behind the sheets."""
    return Answer(agreement_of(context))


@router.get("/api/memories/{address}/answer", tags=["annotations"], response_model=SheetView)
def memory_sheet_data(context: TheStudy, address: AddressText, annotator: Annotator = "") -> Answer:
    """The same for a memory that somebody picked."""
    return Answer(sheet_view(context, sheet_of_memory(context, address), annotator))


@router.put("/api/memories/{address}/answer", tags=["annotations"], response_model=SaveResult)
def answer_memory(context: TheStudy, address: AddressText, given: AnswerInput) -> Answer:
    """Save patterns of a memory that somebody picked; left out of studies of random keys."""
    return Answer(save_answer(context, sheet_of_memory(context, address), given))


def save_answer(context: StudyContext, sheet: Sheet, given: AnswerInput) -> SaveResult:
    """Check an answer, and save it, with its sheet where that is new."""
    name = check_name(given.annotator)
    answers = to_answers(given)
    for fault in check(answers, sheet):
        raise FfmemError(f"pattern {fault.pattern}: {fault.message}")
    if sheet.by_choice:
        context.annotations.add_sheets([sheet])
    new = context.annotations.answer(sheet, name, [normalise(each) for each in answers])
    return SaveResult(sheet=sheet.name, new=new)


def to_answers(given: AnswerInput) -> list[PatternAnswer]:
    """The patterns as they were sent."""
    return [
        PatternAnswer(each.description, cast(PatternKind, each.kind), tuple(each.ranks))
        for each in given.patterns
    ]
