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
    expert_use,
    figures,
    labels,
    live_memory,
    memory,
    overview,
    patterns,
    prompt,
    search,
)
from ffmem.explorer.security import Guard
from ffmem.explorer.templating import STATIC, templates
from ffmem.version import VERSION

# Each has a `router`, and a `LINK` (title, address) if it stands in the navigation; one that not
# every study has `is_for` it.
PAGES: tuple[ModuleType, ...] = (
    overview,
    figures,
    memory,
    live_memory,
    patterns,
    search,
    prompt,
    expert_use,
    annotate,
    labels,
    compare,
    api,
)


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
    templates()  # compiled now, so that no page waits for them
    app.state.navigation = [
        part.LINK
        for part in PAGES
        if hasattr(part, "LINK") and (not hasattr(part, "is_for") or part.is_for(explored))
    ]
    for part in PAGES:
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    install_error_pages(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, token=token)
    return app
