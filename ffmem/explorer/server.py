"""Run the explorer: one process, a few threads, and helpers for pages."""

from __future__ import annotations

import gc
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace

import uvicorn
from fastapi import FastAPI

from ffmem.errors import ListenError, shorten
from ffmem.explorer.page_queue import can_fork
from ffmem.explorer.security import LOOPBACK

GARBAGE = 50_000  # objects made before cycles among them are looked for
BACKLOG = 2048  # connections that may wait to be taken
SWITCH = 0.0005  # seconds that a busy thread may keep a page waiting


@dataclass(frozen=True)
class ListenAddress:
    """Where the explorer listens; a `token` is needed anywhere but on loopback."""

    host: str = "127.0.0.1"
    port: int = 8600
    token: str | None = None

    @classmethod
    def with_token(cls, host: str, port: int, token: str | None) -> ListenAddress:
        """Make a token where one is needed and none was given."""
        needed = host not in LOOPBACK and token is None
        return cls(host, port, secrets.token_urlsafe(24) if needed else token)

    @property
    def url(self) -> str:
        """What to open; it carries the token."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def is_host(text: str) -> bool:
    """Whether a text can be a host's name or address."""
    try:
        return text.isprintable() and text.encode("idna") != b""
    except UnicodeError:
        return False


def listen(place: ListenAddress) -> tuple[ListenAddress, socket.socket]:
    """Listen there; returns the place again, with the port that was found where 0 was asked for."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    if not is_host(place.host):
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
