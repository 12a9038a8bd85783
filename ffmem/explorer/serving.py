"""Run the explorer: one process, a few threads, and a helper for pages."""

from __future__ import annotations

import gc
import secrets
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from ffmem.explorer.helper import Helper, can_help
from ffmem.explorer.safety import LOOPBACK

GARBAGE = 50_000  # objects made before cycles among them are looked for
SWITCH = 0.0005  # seconds that a busy thread may keep a page waiting


@dataclass(frozen=True)
class Place:
    """Where the explorer listens; a `token` is needed anywhere but on loopback."""

    host: str = "127.0.0.1"
    port: int = 8600
    token: str | None = None

    @classmethod
    def chosen(cls, host: str, port: int, token: str | None) -> Place:
        """Make a token where one is needed and none was given."""
        needed = host not in LOOPBACK and token is None
        return cls(host, port, secrets.token_urlsafe(24) if needed else token)

    @property
    def url(self) -> str:
        """What to open; it carries the token."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def serve(app: FastAPI, place: Place, ready: Callable[[], None], browser: bool = True) -> None:
    """Serve until interrupted; `ready` is called when the first request can be answered."""
    config = uvicorn.Config(
        app,
        host=place.host,
        port=place.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 * 1024,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()
                if browser:
                    webbrowser.open(place.url)

    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # what is loaded by now stays; looking through it again would hold up pages
    gc.set_threshold(GARBAGE)  # pages leave next to no cycles, so look for them rarely
    if can_help():
        app.state.helper = Helper(app)
    Server(config).run()
