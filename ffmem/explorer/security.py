"""Access and size limits of requests, checked before any page is reached.

| threat                                   | what holds against it                              |
|------------------------------------------|----------------------------------------------------|
| another machine                          | a token, where the server is not bound to loopback |
| another site's page that writes or asks  | Sec-Fetch-Site and Origin                          |
| a name that is rebound to 127.0.0.1      | the Host must be a loopback name, or bring a token |
| corpus text that is HTML                 | escaped templates; no inline script may run        |
| a script in a study's page or picture    | a sandbox without an origin; only ffmem's script   |
| a request without end                    | the body is cut at a limit; long headers refused   |
"""

from __future__ import annotations

import hmac
import re
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = {"127.0.0.1", "localhost", "[::1]", "::1"}
COOKIE = "ffmem-token"
LONGEST_BODY = 256 * 1024  # bytes
LONGEST_QUERY = 48 * 1024  # a prompt of 20,000 letters, or 3,000 written as up to 12, and its edits
LONGEST_HEADERS = 64 * 1024
LARGEST_PORT = 65_535
READING = {"GET", "HEAD", "OPTIONS"}
HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[[a-f0-9:.]+\])(:(?P<port>[0-9]{0,5}))?", re.I | re.A)
LENGTH = re.compile(r"[0-9]{1,18}")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
SANDBOX = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; frame-ancestors 'none'"
)


def sandbox_headers(script: str | None = None) -> dict[str, str]:
    """The headers of a file of the study, which anybody may have written.

    The browser gives it no origin, so that it reaches no other page, and runs no script but that of
    the source expression `script`. A browser refuses a page that has both a sandbox and an opener
    policy, and the sandbox keeps it from its opener.
    """
    sandbox = "sandbox" if script is None else f"sandbox allow-scripts; script-src {script}"
    return {
        "Content-Security-Policy": f"{SANDBOX}; {sandbox}",
        "Cross-Origin-Opener-Policy": "unsafe-none",
    }


class Guard:
    """ASGI middleware: refuses what is not allowed, and adds the headers that bind the browser."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self.refusal(Request(scope))
        if refused is not None:
            await refused(scope, receive, _with_headers(send))
            return
        await self.app(scope, _limit_body(receive), _with_headers(send))

    def refusal(self, request: Request) -> Response | None:
        """Why this request is not let through, or None."""
        if len(request.scope["query_string"]) > LONGEST_QUERY or _too_long(request.headers):
            return PlainTextResponse("the request is too long", 413)
        if sum(len(name) + len(value) for name, value in request.headers.raw) > LONGEST_HEADERS:
            return PlainTextResponse("the headers are too long", 431)
        if _is_cross_site(request):
            return PlainTextResponse("requests from other sites are refused", 403)
        host = _host_of(request.headers.get("host", ""))
        if host is None or (self.token is None and host not in LOOPBACK):
            return PlainTextResponse("this host name is not served here", 403)
        return None if self.token is None else self.unknown(request, self.token)

    def unknown(self, request: Request, token: str) -> Response | None:
        """Ask for the token; a link that carries it leaves it in a cookie."""
        offered = request.query_params.get("token")
        if offered is not None and request.method == "GET" and _constant_time_equal(offered, token):
            pairs = request.query_params.multi_items()
            rest = [pair for pair in pairs if pair[0] != "token"]
            path = "/" + quote(request.scope["path"].lstrip("/"))  # never //elsewhere
            answer = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
            # Not strict: a link in the sandboxed report counts as one from another site.
            answer.set_cookie(COOKIE, token, httponly=True, samesite="lax")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _constant_time_equal(bearer, token):
            return None
        if _constant_time_equal(request.cookies.get(COOKIE, ""), token):
            return None
        text = "a token is needed: open the address that `ffmem explore` printed"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})


def _constant_time_equal(offered: str, token: str) -> bool:
    """Compare in a time that tells nothing."""
    return hmac.compare_digest(offered.encode(), token.encode())


def _host_of(header: str) -> str | None:
    """The name in `name:port` or `[address]:port`, in lower case; None where it is neither."""
    parts = HOST.fullmatch(header)
    if parts is None or int(parts["port"] or 0) > LARGEST_PORT:
        return None
    return parts["name"].lower()


def _is_cross_site(request: Request) -> bool:
    """Whether another site's page makes this request, other than by a plain link to a page."""
    headers = request.headers
    host = headers.get("host", "").lower()
    here = {f"http://{host}", f"https://{host}"}
    if any(origin.lower() not in here for origin in headers.getlist("origin")):
        return True
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    link = headers.get("sec-fetch-mode") == "navigate" and request.method in READING
    return not link or request.scope["path"].startswith("/api")


def _too_long(headers: Headers) -> bool:
    """Whether a request announces more than may be sent."""
    length = headers.get("content-length", "0")
    return LENGTH.fullmatch(length) is None or int(length) > LONGEST_BODY


def _limit_body(receive: Receive) -> Receive:
    """The same body, cut off where it grows past the limit (a chunked one announces no length)."""
    read = 0

    async def receive_up_to_limit() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > LONGEST_BODY:
            return {"type": "http.disconnect"}
        return message

    return receive_up_to_limit


def _with_headers(send: Send) -> Send:
    """Send an answer with the headers that bind the browser, but for those that it has itself."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [header for header in HEADERS if header[0] not in own]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return send_with_headers
