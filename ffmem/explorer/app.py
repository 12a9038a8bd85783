"""The app: pages, static files, safety in front of them, and its server."""

from __future__ import annotations

import gc
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

import uvicorn
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from ffmem.errors import ListenError, shorten
from ffmem.explorer.answers import Api
from ffmem.explorer.context import StudyContext
from ffmem.explorer.error_pages import ERROR_RESPONSES, HeadAsGet, install_error_pages
from ffmem.explorer.page_queue import PageQueue, can_fork
from ffmem.explorer.pages import (
    annotate,
    api,
    compare,
    experts,
    figures,
    labels,
    memory,
    overview,
    patterns,
    prompt,
    search,
    why,
)
from ffmem.explorer.queries.experts import has_experts
from ffmem.explorer.security import LOOPBACK, Guard
from ffmem.explorer.templating import STATIC, Link, templates
from ffmem.version import VERSION

GARBAGE = 50_000  # objects made before cycles among them are looked for
BACKLOG = 2048  # connections that may wait to be taken
SWITCH = 0.0005  # seconds that a busy thread may keep a page waiting
# Each has a `router`; what stands in the navigation is in `navigation`.
PAGES: tuple[ModuleType, ...] = (
    overview,
    figures,
    experts,
    memory,
    patterns,
    search,
    prompt,
    why,
    annotate,
    labels,
    compare,
    api,
)


def navigation(context: StudyContext) -> list[Link]:
    """The pages that every page leads to; only a mixture has experts."""
    of_mixture = [experts.LINK] if has_experts(context) else []
    links = [overview.LINK, search.LINK, prompt.LINK, *of_mixture]
    return [*links, annotate.LINK, labels.LINK, compare.LINK, api.LINK]


def create_app(context: StudyContext, token: str | None = None) -> FastAPI:
    """The whole explorer for one study. With a `token`, whoever does not bring it sees nothing."""
    app = Api(
        title="ffmem explorer",
        version=VERSION,
        summary="What a language model's feed-forward layers remember, over HTTP.",
        docs_url=None,  # the stock page fetches scripts from elsewhere; /api lists the routes
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=ERROR_RESPONSES,
    )
    app.state.context = context
    app.state.page_queue = PageQueue()
    templates()  # compiled now, so that no page waits for them
    app.state.navigation = navigation(context)
    for part in PAGES:
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    install_error_pages(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, token=token)
    return app


@dataclass(frozen=True)
class ListenAddress:
    """The explorer's address; a `token` is required except on loopback, and never blank."""

    host: str = "127.0.0.1"
    port: int = 8600
    token: str | None = None

    def __post_init__(self) -> None:
        """Refuse a token that everybody has."""
        if self.token is not None and not self.token.strip():
            raise ListenError(
                "the token is empty; write one that is hard to guess, or leave --token out"
            )

    @classmethod
    def with_token(cls, host: str, port: int, token: str | None) -> ListenAddress:
        """Make a token where one is needed and none was given."""
        needed = host not in LOOPBACK and token is None
        return cls(host, port, secrets.token_urlsafe(24) if needed else token)

    @property
    def url(self) -> str:
        """The URL to open, with the token."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def _is_host(text: str) -> bool:
    """Whether a text can be a host's name or address."""
    try:
        return text.isprintable() and text.encode("idna") != b""
    except UnicodeError:
        return False


def listen(place: ListenAddress) -> tuple[ListenAddress, socket.socket]:
    """Listen there; returns the place again, with the port that was found where 0 was asked for."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    if not _is_host(place.host):
        raise ListenError(f"{shorten(place.host)!r} is not a host; write a name or an IP address")
    try:
        door = socket.create_server((place.host, place.port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise ListenError(
            f"the explorer cannot listen at {place.host}, port {place.port} ({reason}); "
            "choose another --port or --host"
        ) from None
    return replace(place, port=door.getsockname()[1]), door


def serve(
    app: FastAPI,
    place: ListenAddress,
    door: socket.socket,
    ready: Callable[[], None],
    browser: bool = True,
) -> None:
    """Serve until interrupted; `ready` is called when the first request can be answered."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 * 1024,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()
                if browser:
                    webbrowser.open(place.url)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            app.state.page_queue.close()

    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # what is loaded by now stays; looking through it again would hold up pages
    gc.set_threshold(GARBAGE)  # pages leave next to no cycles, so look for them rarely
    if can_fork():
        app.state.page_queue.start_helpers(app, door)
    Server(config).run([door])
