"""The app: pages, static files and the safety in front of them."""

from __future__ import annotations

from types import ModuleType

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from ffmem.explorer.context import StudyContext
from ffmem.explorer.error_pages import DOCUMENTED, HeadAsGet, install_error_pages
from ffmem.explorer.pages import (
    annotate,
    api,
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
from ffmem.explorer.templating import STATIC, Link, templates
from ffmem.version import VERSION

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
    api,
)


def navigation(explored: StudyContext) -> list[Link]:
    """The pages that every page leads to; only a mixture has experts."""
    experts = [overview.EXPERTS_LINK] if has_experts(explored) else []
    links = [overview.LINK, search.LINK, prompt.LINK, *experts]
    return [*links, annotate.LINK, labels.LINK, compare.LINK, api.LINK]


def create_app(explored: StudyContext, token: str | None = None) -> FastAPI:
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
    app.state.explored = explored
    app.state.helper = None  # a server may have one
    app.state.templates = templates(navigation(explored))
    for part in PAGES:
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    install_error_pages(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, token=token)
    return app
