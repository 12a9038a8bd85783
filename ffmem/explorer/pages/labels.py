"""Labels and lists: what people call memories, and sets of them to read, save and bring back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from ffmem.errors import AddressError
from ffmem.explorer.answers import Answer, download
from ffmem.explorer.context import TheStudy
from ffmem.explorer.queries.labels import (
    LabelView,
    ListChange,
    Lists,
    ListView,
    cells_of_set,
    label_view,
    labels_of,
    list_text,
    list_view,
    lists_view,
    members,
)
from ffmem.explorer.queries.memory import cell_of
from ffmem.explorer.query_parameters import AddressText
from ffmem.explorer.templating import page
from ffmem.records import as_csv
from ffmem.store.people.memory_labels import (
    LONGEST_LABEL,
    LONGEST_LIST_NAME,
    LONGEST_NOTE,
    MOST_MEMBERS,
    parse_label,
)
from ffmem.text import UNSEEN

LINK = ("Lists", "/lists")
router = APIRouter()
# It stands in addresses, so it neither begins with a dot nor holds a slash.
LIST_NAME = rf"^[^\s./{UNSEEN}](?:[^/{UNSEEN}]*[^\s/{UNSEEN}])?$"
ListName = Annotated[str, Path(min_length=1, max_length=LONGEST_LIST_NAME, pattern=LIST_NAME)]


class LabelInput(BaseModel):
    """What to call a memory; empty texts take a label back."""

    label: str = Field("", max_length=LONGEST_LABEL, pattern=rf"^[^{UNSEEN}]*$")
    note: str = Field("", max_length=LONGEST_NOTE, pattern=r"^[^\u0000]*$")


class SetInput(BaseModel):
    """A set of memories as its file says it: one address per line, `#` begins a comment."""

    text: str = Field(min_length=1, max_length=200_000)


@router.get("/lists", include_in_schema=False)
def lists_page(request: Request, context: TheStudy) -> HTMLResponse:
    """All lists and labels."""
    return page(request, "lists.html.j2", view=lists_view(context), one=None)


@router.get("/lists/{name}", include_in_schema=False)
def list_page(request: Request, context: TheStudy, name: ListName) -> HTMLResponse:
    """One list."""
    return page(request, "lists.html.j2", view=None, one=list_view(context, name))


@router.get("/lists/{name}/memories.txt", include_in_schema=False)
def list_file(context: TheStudy, name: ListName) -> Response:
    """A list as a set of memories for `--set @FILE`."""
    return download(list_text(name, members(context, name)), "memories.txt")


@router.get("/lists/{name}/memories.csv", include_in_schema=False)
def list_table(context: TheStudy, name: ListName) -> Response:
    """A list with labels and notes as a table."""
    return download(as_csv(list_view(context, name).memories), "memories.csv")


@router.get("/labels.csv", include_in_schema=False)
def labels_table(context: TheStudy) -> Response:
    """All labels and notes as a table."""
    return download(as_csv(lists_view(context).labels), "labels.csv")


@router.get("/api/memories/{address}/label", tags=["labels"], response_model=LabelView)
def label_data(context: TheStudy, address: AddressText) -> Answer:
    """The label and note of a memory, and the lists that it is on."""
    return Answer(label_view(context, cell_of(context, address)))


@router.put("/api/memories/{address}/label", tags=["labels"], response_model=LabelView)
def save_label(context: TheStudy, address: AddressText, given: LabelInput) -> Answer:
    """Call a memory something, and note something about it; older labels are kept."""
    cell = cell_of(context, address)
    labels_of(context).set_label(str(cell), parse_label(given.label, given.note))
    return Answer(label_view(context, cell))


@router.get("/api/lists", tags=["labels"], response_model=Lists)
def lists_data(context: TheStudy) -> Answer:
    """All lists, and all memories that have a label or a note."""
    return Answer(lists_view(context))


@router.get("/api/lists/{name}", tags=["labels"], response_model=ListView)
def list_data(context: TheStudy, name: ListName) -> Answer:
    """The memories of one list."""
    return Answer(list_view(context, name))


@router.post("/api/lists/{name}", tags=["labels"], response_model=ListChange)
def import_list(context: TheStudy, name: ListName, given: SetInput) -> Answer:
    """Put the memories of a set on a list; the list is made if it is not there."""
    keys = cells_of_set(context.store.cells, given.text)
    if len(keys) > MOST_MEMBERS:
        raise AddressError(f"the set has {len(keys):,} memories; give at most {MOST_MEMBERS:,}")
    return Answer(ListChange(labels_of(context).add(name, keys)))


@router.put("/api/lists/{name}/{address}", tags=["labels"], response_model=ListChange)
def add_to_list(context: TheStudy, name: ListName, address: AddressText) -> Answer:
    """Put a memory on a list; the list is made if it is not there."""
    return Answer(ListChange(labels_of(context).add(name, [str(cell_of(context, address))])))


@router.delete("/api/lists/{name}/{address}", tags=["labels"], response_model=ListChange)
def take_off_list(context: TheStudy, name: ListName, address: AddressText) -> Answer:
    """Take a memory off a list; a list without memories is gone."""
    return Answer(ListChange(labels_of(context).remove(name, [str(cell_of(context, address))])))
