"""The page that lists the API: made from its own description."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from ffmem.explorer.rendering import page

LINK = ("API", "/api")
router = APIRouter()


@router.get("/api", include_in_schema=False)
def api_page(request: Request) -> HTMLResponse:
    """Every route, its parameters and what it answers."""
    description = request.app.openapi()
    routes = [
        route(path, method, what)
        for path, methods in description["paths"].items()
        for method, what in methods.items()
    ]
    return page(request, "api.html.j2", routes=routes)


def route(path: str, method: str, what: dict[str, Any]) -> dict[str, Any]:
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
    says = what.get("description", what.get("summary", ""))
    return {"path": path, "method": method.upper(), "says": says, "parameters": parameters}
