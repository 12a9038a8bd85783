"""Parameters of requests that several pages take."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

LONGEST_TEXT = 20_000  # characters, so that a request fits into an address
LARGEST_NUMBER = 1e6  # in an edit

NULL = {"type": "null"}  # cannot be written in a query
EMPTY = {"const": ""}


class EmptyIsNone:
    """Annotation of an optional parameter: empty text is read as None, also in the schema."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_none_if_empty, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = handler(schema)
        kinds = [kind for kind in found.pop("anyOf") if kind != NULL]
        return {**found, "anyOf": [*kinds, EMPTY]}


def _none_if_empty(value: object) -> object:
    """None for the empty text; anything else unchanged."""
    return None if value == "" else value


PromptText = Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT)]
PromptPosition = Annotated[
    int | None,
    Query(
        description="Tokens read, from 1; negative counts from the end.",
        ge=-1_000_000,
        le=1_000_000,
        json_schema_extra={"not": {"const": 0}},
    ),
    EmptyIsNone(),
]
PromptToken = Annotated[
    int | None,
    Query(ge=0, le=10_000_000, description="Whose logit is explained; none is the likeliest."),
    EmptyIsNone(),
]

AddressText = Annotated[str, Path(max_length=40, examples=["L7.1034"])]
FigureName = Annotated[str, Path(max_length=80, examples=["values-agreement"])]
InChat = Annotated[bool, Query(description="Put the text into the model's chat template.")]
