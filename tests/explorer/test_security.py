"""Who may ask, and how much."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ffmem.errors import ListenError
from ffmem.explorer.app import ListenAddress, create_app, listen
from ffmem.explorer.context import StudyContext
from ffmem.explorer.security import LONGEST_BODY

HERE = "http://127.0.0.1:8600"


@pytest.fixture(scope="module")
def closed_app(explored: StudyContext) -> FastAPI:
    """Where one must bring a token."""
    return create_app(explored, token="s3cret")


def test_every_answer_binds_the_browser(client: TestClient) -> None:
    for path in ("/", "/static/style.css", "/api/overview", "/nothing"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_another_host_name_is_refused_unless_it_brings_the_token(
    app: FastAPI, closed_app: FastAPI
) -> None:
    rebound = {"host": "evil.example:8600"}
    assert TestClient(app, base_url=HERE).get("/", headers=rebound).status_code == 403
    for name in ("127.0.0.1:8600", "localhost:8600", "[::1]:8600"):
        assert TestClient(app, base_url=HERE).get("/", headers={"host": name}).status_code == 200
    elsewhere = TestClient(closed_app, base_url="http://lab.example:8600")
    assert elsewhere.get("/").status_code == 401
    assert elsewhere.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert elsewhere.get("/", headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_the_token_of_the_printed_address_becomes_a_cookie(closed_app: FastAPI) -> None:
    asking = TestClient(closed_app, base_url=HERE)
    answer = asking.get("/search?by=any&token=s3cret", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/search?by=any")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert asking.get("/search?by=any").status_code == 200
    stranger = TestClient(closed_app, base_url=HERE)
    assert stranger.get("/?token=other").status_code == 401
    away = stranger.get("//evil.example/?token=s3cret", follow_redirects=False)
    assert not away.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize(
    ("headers", "method", "path", "expected"),
    [
        ({"origin": "https://evil.example"}, "POST", "/api/overview", 403),
        ({"origin": "null"}, "POST", "/api/overview", 403),
        ({"origin": HERE}, "POST", "/api/overview", 405),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "GET", "/", 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, "GET", "/api/overview", 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "GET", "/", 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "POST", "/", 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "GET", "/api", 403),
        ({"sec-fetch-site": "same-origin"}, "GET", "/api/overview", 200),
        ({}, "GET", "/api/overview", 200),
    ],
)
def test_other_sites_may_link_and_nothing_else(
    client: TestClient, headers: dict[str, str], method: str, path: str, expected: int
) -> None:
    found = client.request(method, path, headers=headers).status_code
    assert found == expected


@pytest.mark.parametrize(
    "origin",
    [
        b"http://[",
        b"http://[::1",
        b"http://]",
        b"",
        b"//127.0.0.1:8600",
        b"ftp://127.0.0.1:8600",
        b"http://127.0.0.1:8600/",
        b"http://127.0.0.1:99999",
        b"http://127.0.0.1:-1",
        b"http://127.0.0.1:\xb2",
        b"\xff\xfe",
        b"http://" + b"a" * 30_000,
    ],
)
def test_an_origin_that_cannot_be_read_is_another_site(client: TestClient, origin: bytes) -> None:
    for method, path in (("GET", "/"), ("POST", "/api/sheets")):
        answer = client.request(method, path, headers={b"Origin": origin})
        assert (answer.status_code, answer.text) == (403, "requests from other sites are refused")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"[::1]", 200),
        (b"[::1]:8600", 200),
        (b"LOCALHOST:65535", 200),
        (b"localhost:", 200),
        (b"::1", 403),
        (b"[::1", 403),
        (b"[", 403),
        (b"", 403),
        (b"127.0.0.1:65536", 403),
        (b"127.0.0.1:" + b"1" * 5_000, 403),
        (b"127.0.0.1:x", 403),
        (b"127.0.0.1:\xb2", 403),
        (b"user@127.0.0.1", 403),
        (b"\xff", 403),
    ],
)
def test_only_a_well_formed_host_is_served(
    app: FastAPI, closed_app: FastAPI, host: bytes, expected: int
) -> None:
    asking = TestClient(app, base_url=HERE)
    assert asking.get("/api/overview", headers={b"Host": host}).status_code == expected
    closed = TestClient(closed_app, base_url=HERE)
    for path in ("/", "/search/", "/?token=s3cret"):
        answer = closed.get(path, headers={b"Host": host}, follow_redirects=False)
        assert answer.status_code == 403 if expected == 403 else answer.status_code in (303, 401)


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        (b"Referer", b"http://[", 200),
        (b"Referer", b"\xff", 200),
        (b"Cookie", b"\xff=\xfe; ffmem-token=\xff", 200),
        (b"Sec-Fetch-Site", b"", 403),
        (b"Sec-Fetch-Site", b"\xff", 403),
        (b"Sec-Fetch-Mode", b"\xff", 200),
        (b"Content-Length", b"\xb2", 413),
        (b"Content-Length", b"-1", 413),
        (b"Content-Length", b"1" * 5_000, 413),
        (b"Referer", b"x" * 70_000, 431),
    ],
)
def test_odd_headers_are_answered(
    client: TestClient, header: bytes, value: bytes, expected: int
) -> None:
    assert client.get("/api/overview", headers={header: value}).status_code == expected


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/nothing", 404, "there is nothing at '/nothing'"),
        ("/api/nothing", 404, "there is nothing at '/api/nothing'"),
        ("/" + "x" * 5_000, 404, f"'/{'x' * 79}…'"),
        ("/figure/no%00thing", 404, "this study has no figure 'no\\x00thing'"),
        ("/annotate/NaN", 422, "name: 'NaN' is not valid here"),
        ("/search?by=any&layer=-1", 422, "layer: Input should be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_found_or_read_is_named(
    client: TestClient, path: str, status: int, says: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert says in unescape(answer.text)


@pytest.mark.parametrize(
    ("referer", "expected"),
    [
        (f"{HERE}/search?by=any", "/search?by=any"),
        (f"{HERE}//evil.example/", "/evil.example/"),
        (f"{HERE}/nothing", None),
        ("https://evil.example/search", None),
        ("http://[", None),
    ],
)
def test_a_page_that_is_not_there_leads_back(
    client: TestClient, referer: str, expected: str | None
) -> None:
    """To the overview, and to the page before unless that is another site's or this one."""
    links = re.findall(
        r'<p><a href="([^"]*)"', client.get("/nothing", headers={"Referer": referer}).text
    )
    assert links == [expected or "/"]


def test_requests_are_bounded(client: TestClient) -> None:
    assert client.get("/search", params={"q": "x" * 500}).status_code == 422
    assert client.get("/search", params={"q": "x" * 50_000}).status_code == 413
    longest = client.get("/api/prompt", params={"text": "😀" * 3_000})
    assert (longest.status_code, "tokens; give between" in longest.text) == (400, True)
    assert client.post("/api/overview", content=b"x" * (LONGEST_BODY + 1)).status_code == 413
    for wrong in (
        "/memory/L1.0?triggers=100000",
        "/api/search?count=100000",
        "/search?first=99999",
    ):
        assert client.get(wrong).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/figures/../manifest.json",
        "/figures/..%2fmanifest.json",
        "/figures/%2e%2e%2f%2e%2e%2fetc%2fpasswd.svg",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2f..%2fapp.py",
        "/figures/values-agreement.html",
    ],
)
def test_paths_cannot_leave_the_study_folder(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 422)


def test_another_host_than_this_machine_gets_a_token() -> None:
    assert ListenAddress.with_token("127.0.0.1", 8600, None).token is None
    assert ListenAddress.with_token("::1", 1, None).url == "http://[::1]:1/"
    made = ListenAddress.with_token("0.0.0.0", 8600, None)
    assert made.token is not None
    assert len(made.token) >= 24
    assert made.url == f"http://127.0.0.1:8600/?token={made.token}"
    assert ListenAddress.with_token("10.0.0.7", 80, "mine").token == "mine"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("token", ["", " ", "\t\n"])
def test_a_blank_token_is_refused(host: str, token: str) -> None:
    """It would let everybody in, and on loopback take the check of the Host away."""
    with pytest.raises(ListenError, match="the token is empty"):
        ListenAddress.with_token(host, 8600, token)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    found, door = listen(ListenAddress(port=0))
    with door:
        assert found.port == door.getsockname()[1] > 0
        with pytest.raises(ListenError, match=rf"port {found.port} \(Address already in use\);"):
            listen(found)
