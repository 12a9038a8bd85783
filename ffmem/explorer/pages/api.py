"""The list of the HTTP API: every route, its parameters and what it answers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from ffmem.explorer.templating import page

LINK = ("API", "/api")
router = APIRouter()


@router.get("/api", include_in_schema=False)
def api_page(request: Request) -> HTMLResponse:
    """Every route, its parameters and what it answers."""
    description = request.app.openapi()
    routes = [
        route(path, method, what, description["components"]["schemas"])
        for path, methods in description["paths"].items()
        for method, what in methods.items()
    ]
    return page(request, "api.html.j2", routes=routes)


def route(path: str, method: str, what: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """One route as the page shows it."""
    parameters = [
        {
            "name": parameter["name"],
            "where": parameter["in"],
            "required": parameter.get("required", False),
            "says": parameter.get("description", ""),
        }
        for parameter in what.get("parameters", [])
    ]
    parameters += _body_fields(what, schemas)
    says = what.get("description", what.get("summary", ""))
    return {"path": path, "method": method.upper(), "says": says, "parameters": parameters}


def _body_fields(what: dict[str, Any], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of the JSON that a route is sent, if it is sent any."""
    content = what.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return []
    schema = schemas[content["schema"]["$ref"].rsplit("/", 1)[-1]]
    return [
        {
            "name": name,
            "where": "in the body",
            "required": name in schema.get("required", []),
            "says": field.get("description", ""),
        }
        for name, field in schema["properties"].items()
    ]
