"""Pages made by helpers, so that all cores answer instead of one.

Helpers are copies of the process that serves, made before it starts: what is loaded is shared, not
loaded again. They know what lies on disk and nothing of the live model. Where a process cannot be
copied, and when the helpers are lost or cannot make a page, pages are made in the first process.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response

from ffmem.explorer.context import StudyContext
from ffmem.interrupts import end_at_once

SIZE = struct.Struct("<I")  # comes before every page: how many bytes it has
Making = Callable[..., str]  # a page's text from the app, its path, and what it is about
MOST_HELPERS = 4


async def render_page(
    request: Request,
    within: float,
    making: Making,
    *about: Any,
    kind: type[Response] = HTMLResponse,
) -> Response:
    """A page, made by a helper or here; `about` must survive pickling.

    `within` is how many seconds a reader should wait at most: what is due first is made first.
    """
    app, path = request.app, request.scope["path"]
    context: StudyContext = app.state.context
    pages: PageQueue = app.state.page_queue
    if pages.has_helpers and context.database is None:  # another machine's would hold them up
        page = await pages.ask(within, making, path, about)
        if page:
            return kind(page)
    if context.has_annotations:
        return kind(await run_in_threadpool(making, app, path, *about))
    return kind(making(app, path, *about))


def can_fork() -> bool:
    """Whether a process can be copied here, and has a core to run on."""
    return sys.platform == "linux" and (os.cpu_count() or 1) > 1


@dataclass(order=True)
class WantedPage:
    """A page that waits for a helper."""

    due: float
    number: int  # of two that are due at once, the one asked for first
    question: bytes = field(compare=False)
    answer: asyncio.Future[bytes] = field(compare=False)


class PageQueue:
    """Pages that are wanted, and the helpers that make them; to be asked from one event loop only.

    A helper has one page at a time, so that none waits for a long one while another helper has
    nothing to do, and what is due soon overtakes what may take longer.
    """

    def __init__(self) -> None:
        """Without helpers; pages are then made where they are asked for."""
        self.helpers: list[PageProcess] = []
        self._wanted: asyncio.PriorityQueue[WantedPage] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    def start_helpers(self, app: FastAPI, door: socket.socket, count: int | None = None) -> None:
        """Copy this process, once per core; the `door` where it listens is not their business."""
        cores = os.cpu_count() or 1
        for _ in range(min(cores, MOST_HELPERS) if count is None else count):
            ends = [helper.end for helper in self.helpers]
            self.helpers.append(PageProcess(app, [door, *ends]))

    @property
    def has_helpers(self) -> bool:
        """Whether any is left."""
        return any(not helper.lost for helper in self.helpers)

    async def ask(self, within: float, making: Making, path: str, about: tuple[Any, ...]) -> bytes:
        """The page; nothing if it could not be made."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._work(helper)) for helper in self.helpers]
        loop = asyncio.get_running_loop()
        question, answer = pickle.dumps((making, path, about)), loop.create_future()
        due = loop.time() + within
        self._wanted.put_nowait(WantedPage(due, next(self._numbers), question, answer))
        return await answer

    def close(self) -> None:
        """Let the helpers end."""
        for task in self._tasks:
            task.cancel()
        for helper in self.helpers:
            helper.close()

    async def _work(self, helper: PageProcess) -> None:
        """Give a helper what is due first until it is lost; the last one leaves nothing waiting."""
        while not helper.lost:
            wanted = await self._wanted.get()
            if not wanted.answer.done():  # whoever asked may be gone
                _settle(wanted.answer, await helper.make(wanted.question))
        while not self.has_helpers and not self._wanted.empty():
            _settle(self._wanted.get_nowait().answer, b"")


class PageProcess:
    """A helper as seen from the first process."""

    def __init__(self, app: FastAPI, others: Sequence[socket.socket]) -> None:
        """Start it, without the sockets of `others`."""
        self.end, theirs = socket.socketpair()
        context = multiprocessing.get_context("fork")
        args = (app, theirs, self.end, *others)
        self.process = context.Process(target=_help, args=args, daemon=True)
        self.process.start()
        theirs.close()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.lost = False

    async def make(self, question: bytes) -> bytes:
        """The page that was asked for; nothing if the helper is lost or cannot make it."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(sock=self.end)
            reader, writer = self._streams
            writer.write(question)
            (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
            return await reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            self.lost = True
            return b""

    def close(self) -> None:
        """Leave it alone, by which it ends."""
        self.lost = True
        if self._streams is not None:
            self._streams[1].close()
        self.end.close()


def _settle(answer: asyncio.Future[bytes], page: bytes) -> None:
    if not answer.done():  # whoever asked may be gone
        answer.set_result(page)


def _help(app: FastAPI, end: socket.socket, *others: socket.socket) -> None:
    """Main loop of a helper process, until the main process ends."""
    for other in others:
        other.close()  # else none would see the end of its own, or this one would hold the port
    end_at_once()
    with end.makefile("rb") as asked, suppress(EOFError, OSError):
        while True:
            making, path, about = pickle.load(asked)
            try:
                page = making(app, path, *about).encode()
            except Exception:  # made again in the first process, which knows what to say of it
                page = b""
            end.sendall(SIZE.pack(len(page)) + page)
