"""What routes answer: a record as JSON, as OpenAPI describes it, a picture, or a file to keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from ffmem.records import json_line

if TYPE_CHECKING:
    import altair

SCHEMAS = "#/components/schemas/"


class Answer(JSONResponse):
    """A record as JSON, with the keys and numbers that `--json` prints."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json_line(content).encode()


class JsonText(Response):
    """JSON that is text already."""

    media_type = "application/json"


def download(text: str, name: str) -> Response:
    """A file to keep: a table, or plain text."""
    kind = "text/csv" if name.endswith(".csv") else "text/plain"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type=kind, headers=headers)


def picture_of(chart: altair.TopLevelMixin, name: str) -> Response:
    """A chart as SVG, shown in its place."""
    from ffmem.figures.saving import picture, spec_of  # here: charts are slow to import

    headers = {"Content-Disposition": f'inline; filename="{name}.svg"'}
    return Response(picture(spec_of(chart)), media_type="image/svg+xml", headers=headers)


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
