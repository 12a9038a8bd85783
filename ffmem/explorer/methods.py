"""Which methods an address answers: all of them in `Allow`, and HEAD wherever GET is answered."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
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
