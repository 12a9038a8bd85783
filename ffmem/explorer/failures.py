"""What goes wrong, as one sentence: JSON under /api, a page elsewhere."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ffmem.errors import AddressError, FfmemError, LiveError, ModelError
from ffmem.explorer.rendering import page
from ffmem.studies.damage import first_damage

TITLES = {400: "That cannot be done", 404: "Not found", 422: "That cannot be read", 503: "Not now"}


class Problem(BaseModel):
    """What went wrong, in one sentence."""

    detail: str


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": title} for status, title in TITLES.items()
}


def answer_failures(app: FastAPI) -> None:
    """Turn errors that a user can mend into answers; anything else stays a bug (500)."""

    @app.exception_handler(FfmemError)
    async def mendable(request: Request, error: FfmemError) -> Response:
        match error:
            case AddressError():
                status = 404
            case LiveError() | ModelError():
                status = 503
            case _:
                status = 400
        return failure(request, status, str(error))

    for kind in (ValueError, LookupError, ArithmeticError):  # what code raises at broken numbers
        app.add_exception_handler(kind, perhaps_damage)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return failure(request, error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "request"
        return failure(request, 422, f"{where}: {first['msg']}")


async def perhaps_damage(request: Request, error: Exception) -> Response:
    """Name the damaged file behind an error; without one it is a bug."""
    found = await run_in_threadpool(first_damage, request.app.state.explored.folder)
    if found is None:
        raise error
    return failure(request, 400, found)


def failure(request: Request, status: int, message: str, headers: object = None) -> Response:
    """One sentence, in the form that the asker reads."""
    if request.scope["path"].startswith("/api"):
        extra = dict(headers) if isinstance(headers, dict) else None
        return JSONResponse({"detail": message}, status, extra)
    title = TITLES.get(status, "That did not work")
    return page(request, "failure.html.j2", status, title=title, message=message)
