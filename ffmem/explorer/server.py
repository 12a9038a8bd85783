"""Run the explorer: one process, a few threads, and a helper for pages.

The helper is a second process that makes pages, so that two cores answer instead of one. It is a
copy of this process, made before the server starts: what is loaded is shared, not loaded again. It
knows what lies on disk and nothing of the live model. Where a process cannot be copied, and when
the helper is lost or cannot make a page, pages are made here.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import secrets
import signal
import socket
import struct
import sys
import webbrowser
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from ffmem.errors import ListenError, shorten
from ffmem.explorer.context import StudyContext
from ffmem.explorer.security import LOOPBACK

SIZE = struct.Struct("<I")  # comes before every page: how many bytes it has
Making = Callable[..., str]  # a page's text from the app, its path, and what it is about
GARBAGE = 50_000  # objects made before cycles among them are looked for
BACKLOG = 2048  # connections that may wait to be taken
SWITCH = 0.0005  # seconds that a busy thread may keep a page waiting


async def render_page(request: Request, making: Making, *about: Any) -> HTMLResponse:
    """A page, made by the helper or here; `about` must survive pickling."""
    app, path = request.app, request.scope["path"]
    explored: StudyContext = app.state.explored
    helper: PageProcess | None = app.state.helper
    if helper is not None and explored.database is None:  # another machine's would hold it up
        page = await helper.ask(making, path, about)
        if page:
            return HTMLResponse(page)
    if explored.has_annotations:
        return HTMLResponse(await run_in_threadpool(making, app, path, *about))
    return HTMLResponse(making(app, path, *about))


def can_fork() -> bool:
    """Whether a process can be copied here, and has a core to run on."""
    return sys.platform == "linux" and (os.cpu_count() or 1) > 1


class PageProcess:
    """The second process as seen from the first; to be asked from one event loop only."""

    def __init__(self, app: FastAPI, door: socket.socket) -> None:
        """Start it; at the `door` this process listens, and the helper shall not."""
        self._end, theirs = socket.socketpair()
        context = multiprocessing.get_context("fork")
        args = (app, theirs, self._end, door)
        self.process = context.Process(target=_help, args=args, daemon=True)
        self.process.start()
        theirs.close()
        self._asked: deque[asyncio.Future[bytes]] = deque()  # answered in the same order
        self._opening = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._lost = False

    async def ask(self, making: Making, path: str, about: tuple[Any, ...]) -> bytes:
        """The page; nothing if it could not be made."""
        if self._lost:
            return b""
        writer = self._writer or await self._open()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        writer.write(pickle.dumps((making, path, about)))
        return await answer

    async def _open(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None:
                reader, self._writer = await asyncio.open_connection(sock=self._end)
                self._listening = asyncio.create_task(self._listen(reader))
        return self._writer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Pass on what comes back, until the helper is lost."""
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                page = await reader.readexactly(size)
                _settle(self._asked.popleft(), page)
        except (asyncio.IncompleteReadError, OSError):
            self._lost = True
            while self._asked:
                _settle(self._asked.popleft(), b"")


def _settle(answer: asyncio.Future[bytes], page: bytes) -> None:
    if not answer.done():  # whoever asked may be gone
        answer.set_result(page)


def _help(app: FastAPI, end: socket.socket, *others: socket.socket) -> None:
    """What the helper does until the first process is gone."""
    for other in others:
        other.close()  # else it would never see the end of its own, or hold the port
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
    with end.makefile("rb") as asked, suppress(EOFError, OSError):
        while True:
            making, path, about = pickle.load(asked)
            try:
                page = making(app, path, *about).encode()
            except Exception:  # made again in the first process, which knows what to say of it
                page = b""
            end.sendall(SIZE.pack(len(page)) + page)


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

    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # what is loaded by now stays; looking through it again would hold up pages
    gc.set_threshold(GARBAGE)  # pages leave next to no cycles, so look for them rarely
    if can_fork():
        app.state.helper = PageProcess(app, door)
    Server(config).run([door])
