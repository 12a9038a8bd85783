"""The app: pages, the list of its API, static files and the safety in front of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from ffmem.explorer.context import StudyContext
from ffmem.explorer.error_pages import DOCUMENTED, HeadAsGet, install_error_pages
from ffmem.explorer.page_queue import PageQueue
from ffmem.explorer.pages import (
    annotate,
    compare,
    labels,
    memory,
    overview,
    patterns,
    prompt,
    search,
)
from ffmem.explorer.queries.overview import has_experts
from ffmem.explorer.security import Guard
from ffmem.explorer.templating import STATIC, Link, page, templates
from ffmem.version import VERSION

API_LINK = ("API", "/api")
api_router = APIRouter()
# Each has a `router`; what stands in the navigation is in `navigation`.
PAGES: tuple[ModuleType, ...] = (
    overview,
    memory,
    patterns,
    search,
    prompt,
    annotate,
    labels,
    compare,
)


@api_router.get("/api", include_in_schema=False)
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
    parameters += body_fields(what, schemas)
    says = what.get("description", what.get("summary", ""))
    return {"path": path, "method": method.upper(), "says": says, "parameters": parameters}


def body_fields(what: dict[str, Any], schemas: dict[str, Any]) -> list[dict[str, Any]]:
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


def navigation(context: StudyContext) -> list[Link]:
    """The pages that every page leads to; only a mixture has experts."""
    experts = [overview.EXPERTS_LINK] if has_experts(context) else []
    links = [overview.LINK, search.LINK, prompt.LINK, *experts]
    return [*links, annotate.LINK, labels.LINK, compare.LINK, API_LINK]


def create_app(context: StudyContext, token: str | None = None) -> FastAPI:
    """The whole explorer for one study. With a `token`, whoever does not bring it sees nothing."""
    app = FastAPI(
        title="ffmem explorer",
        version=VERSION,
        summary="What a language model's feed-forward layers remember, over HTTP.",
        docs_url=None,  # the stock page fetches scripts from elsewhere; /api lists the routes
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=DOCUMENTED,
    )
    app.state.context = context
    app.state.page_queue = PageQueue()
    templates()  # compiled now, so that no page waits for them
    app.state.navigation = navigation(context)
    for part in PAGES:
        app.include_router(part.router)
    app.include_router(api_router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    install_error_pages(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, token=token)
    return app
