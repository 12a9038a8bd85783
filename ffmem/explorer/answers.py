"""What every route of the API answers: a record as JSON, and how OpenAPI describes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from ffmem.records import json_line

SCHEMAS = "#/components/schemas/"


class Answer(JSONResponse):
    """A record as JSON, with the keys and numbers that `--json` prints."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json_line(content).encode()


class Api(FastAPI):
    """FastAPI, whose description says that a number of an answer may be null: it is not known."""

    def openapi(self) -> dict[str, Any]:
        """The description of all routes."""
        found = super().openapi()
        waiting = [one["responses"] for path in found["paths"].values() for one in path.values()]
        seen: set[str] = set()
        while waiting:
            for node in _nodes(waiting.pop()):
                if node.get("type") == "number":
                    node["type"] = ["number", "null"]
                name = str(node.get("$ref", "")).removeprefix(SCHEMAS)
                if name and name not in seen:
                    seen.add(name)
                    waiting.append(found["components"]["schemas"][name])
        return found


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _nodes(inner)
