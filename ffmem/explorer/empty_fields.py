"""A field that a form sends empty is one that was not filled in."""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

NULL = {"type": "null"}  # cannot be written in a query
EMPTY = {"const": ""}


class EmptyIsNone:
    """Mark of an optional parameter: the empty text is read as None, and described."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(none_if_empty, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = handler(schema)
        kinds = [kind for kind in found.pop("anyOf") if kind != NULL]
        return {**found, "anyOf": [*kinds, EMPTY]}


def none_if_empty(value: object) -> object:
    """None for the empty text; anything else as it is."""
    return None if value == "" else value
