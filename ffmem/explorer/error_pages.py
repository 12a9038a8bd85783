"""Errors as one sentence: JSON under /api, a page elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ffmem.errors import (
    AddressError,
    ConditionError,
    DatabaseError,
    FfmemError,
    LiveError,
    ModelError,
)
from ffmem.explorer.security import HEADERS
from ffmem.explorer.templating import page
from ffmem.store.verification import UNFIT, damage_behind

TITLES = {
    400: "That cannot be done",
    404: "Not found",
    422: "That cannot be read",
    500: "ffmem failed",
    503: "Not now",
}

LONGEST_QUOTE = 80  # characters of what was asked for
REFUSALS = {  # by the guard, before a route is reached
    401: "A token is needed",
    403: "Another site or another host name",
    413: "The query or the body is too long",
    431: "The headers are too long",
}


class Problem(BaseModel):
    """The error in one sentence."""

    detail: str


TEXT = {"text/plain": {"schema": {"type": "string"}}}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    **{status: {"model": Problem, "description": title} for status, title in TITLES.items()},
    **{status: {"content": TEXT, "description": title} for status, title in REFUSALS.items()},
}


def install_error_pages(app: FastAPI) -> None:
    """Turn errors that a user can fix into answers; anything else is a bug (500), and logged."""

    @app.exception_handler(FfmemError)
    async def fixable(request: Request, error: FfmemError) -> Response:
        match error:
            case AddressError() | ConditionError():
                status = 404
            case LiveError() | ModelError() | DatabaseError():
                status = 503
            case _:
                status = 400
        return _error_response(request, status, str(error))

    for kind in UNFIT:
        app.add_exception_handler(kind, _perhaps_damage)

    app.add_exception_handler(Exception, bug)

    @app.exception_handler(HTTPException)
    async def refusal(request: Request, error: HTTPException) -> Response:
        path = brief(request.scope["path"])
        if error.status_code == 405:
            allowed = ", ".join(_allowed_methods(app, request.scope))
            message = f"{path} does not answer {request.method}, only {allowed}"
            return _error_response(request, 405, message, {"Allow": allowed})
        missing = error.status_code == 404 and error.detail == "Not Found"
        message = f"there is nothing at {path}" if missing else str(error.detail)
        return _error_response(request, error.status_code, message, error.headers)

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "request"
        wrong = first["type"] == "string_pattern_mismatch"  # no person reads patterns
        message = misfit(first["input"]) if wrong else first["msg"]
        return _error_response(request, 422, f"{where}: {message}")


def misfit(text: str) -> str:
    """The message for a text of the wrong form."""
    unseen = "" if text.isprintable() else "; it has characters that cannot be seen, take them out"
    return f"{brief(text)} is not valid here{unseen}"


def brief(text: str) -> str:
    """The requested text in quotes, shortened if it would fill the page."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…")


async def _perhaps_damage(request: Request, error: Exception) -> Response:
    """Name the damage behind an error."""
    context = request.app.state.context
    folders = [study.folder for study in (context.study, *context.others)]
    found = await run_in_threadpool(damage_behind, error, folders)
    if found is None:
        raise error
    return _error_response(request, 500, found)


async def bug(request: Request, _error: Exception) -> Response:
    """Say where to look; the error itself is logged."""
    message = "this is a bug of ffmem; what went wrong stands in the terminal where it runs"
    headers = {name.decode(): value.decode() for name, value in HEADERS}  # no guard adds them
    return _error_response(request, 500, message, headers)


def _error_response(
    request: Request, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """One sentence, in the form that the asker reads."""
    if request.scope["path"].startswith("/api"):
        return JSONResponse({"detail": message}, status, headers)
    title = TITLES.get(status, "That did not work")
    values = {"title": title, "message": message, "before": _page_before(request)}
    answer = page(request, "failure.html.j2", status, **values)
    answer.headers.update(headers or {})
    return answer


def _page_before(request: Request) -> str | None:
    """The page of the explorer whose link or form led here, if the browser says so."""
    try:
        before = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    if before.netloc != request.headers.get("host") or before.path == request.scope["path"]:
        return None
    return urlunsplit(("", "", "/" + before.path.lstrip("/"), before.query, ""))


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def _allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods that a request to the same path may have; static files can only be read."""
    asked = {"type": "http", "path": scope["path"], "root_path": "", "headers": []}

    def answers(method: str) -> bool:
        return any(
            route.matches(asked | {"method": method})[0] is Match.FULL
            and (method == "GET" or not isinstance(route, Mount))
            for route in app.routes
        )

    found = [method for method in METHODS if answers(method)]
    return ["HEAD", *found] if "GET" in found else found


class HeadAsGet:
    """ASGI middleware: HEAD is answered as GET is, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask as GET, and send the head of the answer."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            empty = {"body": b""} if message["type"] == "http.response.body" else {}
            await send({**message, **empty})

        await self.app({**scope, "method": "GET"}, receive, send_head)
