"""Servers in processes of their own, with others that make pages.

They make the same pages as the first, and nobody notices when they are gone. What the first said
was saved is there after it was killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ffmem.annotations.database import Annotations
from ffmem.annotations.sheets import draw_sheets
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.explorer.page_queue import PageQueue, can_fork
from ffmem.store.scan_store import ScanStore
from tests.explorer.served import children, started
from tests.waiting import LONGEST, in_a_loop, wait_until

PATHS = [
    "/memory/L2.7",
    "/api/search?by=any&sort=fires",
    "/memory/L1.3?triggers=3",
    "/search?by=any&sort=fires",
    "/memory/L9.1",
    "/search?layer=9",
]
pytestmark = pytest.mark.skipif(not can_fork(), reason="a process cannot be copied here")


def test_pages_come_from_helpers_or_without_them(study: ScanStore) -> None:
    with TestClient(
        create_app(open_context(study.folder.root)), base_url="http://127.0.0.1"
    ) as alone:
        expected = [(answer.status_code, answer.text) for answer in map(alone.get, PATHS)]
    server, port = started(study)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONGEST) as client:

            def found() -> list[tuple[int, str]]:
                return [(answer.status_code, answer.text) for answer in map(client.get, PATHS)]

            assert found() == expected
            helpers = children(server.pid)
            assert len(helpers) > 1

            def send(which: Iterable[int], what: signal.Signals) -> None:
                for helper in which:
                    os.kill(helper, what)

            send(helpers, signal.SIGSTOP)
            with pytest.raises(httpx.TimeoutException):
                client.get(PATHS[0], timeout=0.5)
            assert client.get("/api/memories/L2.7").status_code == 200  # not a helper's work
            send(helpers, signal.SIGCONT)
            assert found() == expected
            send(helpers[:1], signal.SIGKILL)
            assert found() == expected
            send(helpers[1:], signal.SIGKILL)
            assert found() == expected
    finally:
        server.kill()
        server.communicate()


def test_what_was_annotated_is_on_the_page_at_once_and_survives_the_server_and_its_helpers(
    study: ScanStore, tmp_path: Path
) -> None:
    """Killed right after the answer to the last save, without a word to it: nothing is lost."""
    copied = ScanStore.open(shutil.copytree(study.folder.root, tmp_path / "study"))
    sheets = [sheet.name for sheet in draw_sheets(copied, keys=2)][:5]
    server, port = started(copied)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONGEST) as client:

            def answer(path: str, description: str) -> None:
                pattern = {"description": description, "kind": "shallow", "ranks": [1, 2, 3]}
                body = {"annotator": "mara", "patterns": [pattern]}
                client.put(f"/api/{path}/answer", json=body).raise_for_status()

            assert "end in a stone" not in client.get(PATHS[0]).text
            for description in ("all end in a stone", "or end in a stone and a river"):
                answer("memories/L2.7", description)
                assert description in client.get(PATHS[0]).text
            client.post("/api/sheets", json={"keys": 2}).raise_for_status()
            helpers = children(server.pid)
            for number, name in enumerate(sheets):
                answer(f"sheets/{name}", f"text {number}")
            os.kill(server.pid, signal.SIGKILL)
    finally:
        server.kill()
        server.communicate()
    wait_until(lambda: all(map(is_dead, helpers)), "the end of the helpers")
    with closing(Annotations.open(str(tmp_path / "study" / "annotations.sqlite"))) as opened:
        answers = {one.sheet.name: one.answers[0].description for one in opened.answers()}
    assert {name: answers.get(name) for name in sheets} == {
        name: f"text {number}" for number, name in enumerate(sheets)
    }
    assert "or end in a stone and a river" in answers.values()


def wait_for_file(app: FastAPI, path: str, gate: str) -> str:
    """A page that takes until a file is there."""
    wait_until(Path(gate).exists, "the file")
    return write_down(app, path)


def write_down(app: FastAPI, path: str) -> str:
    """A page that leaves its name behind, so that one sees what was made when."""
    with Path(app.state.notes).open("a") as notes:
        notes.write(f"{path}\n")
    return f"page of {path}"


def ask_helpers(count: int, tmp_path: Path, ask: Callable[[PageQueue], Awaitable[Any]]) -> Any:
    """What comes of asking helpers of an app that is nothing but a place for notes."""

    async def ask_and_close() -> Any:
        app, pages = FastAPI(), PageQueue()
        app.state.notes = str(tmp_path / "notes")
        with socket.create_server(("127.0.0.1", 0)) as door:
            pages.start_helpers(app, door, count)
        assert pages.has_helpers
        found = await ask(pages)
        pages.close()
        assert not pages.has_helpers
        await asyncio.sleep(0)  # streams close at the loop's next turn
        return found

    return in_a_loop(ask_and_close())


def test_a_helper_makes_first_what_is_due_first(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def ask_for_all(pages: PageQueue) -> list[bytes]:
        long = asyncio.create_task(pages.ask(9, wait_for_file, "long", (str(gate),)))
        await asyncio.sleep(0)  # the helper has it
        orders = [("late", 30.0), ("later", 60.0), ("soon", 10.0), ("soon too", 10.0)]
        asked = [asyncio.create_task(pages.ask(due, write_down, path, ())) for path, due in orders]
        await asyncio.sleep(0)
        asked[-2].cancel()  # a reader who leaves holds up nobody
        gate.touch()
        return list(await asyncio.gather(long, *asked[:2], *asked[3:]))

    found = ask_helpers(1, tmp_path, ask_for_all)
    assert found == [f"page of {path}".encode() for path in ("long", "late", "later", "soon too")]
    order = (tmp_path / "notes").read_text().splitlines()
    assert order == ["long", "soon too", "late", "later"]


def test_a_long_page_holds_up_no_other_while_a_helper_is_free(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def ask_for_all(pages: PageQueue) -> bytes:
        long = asyncio.create_task(pages.ask(1, wait_for_file, "long", (str(gate),)))
        for _ in range(5):
            assert await pages.ask(1, write_down, "short", ()) == b"page of short"
        gate.touch()
        return await long

    assert ask_helpers(2, tmp_path, ask_for_all) == b"page of long"


def test_when_all_helpers_are_lost_nobody_waits_for_them(tmp_path: Path) -> None:
    async def ask_for_all(pages: PageQueue) -> list[bytes]:
        never = (str(tmp_path / "never"),)
        asked = [asyncio.create_task(pages.ask(1, wait_for_file, "x", never)) for _ in range(3)]
        await asyncio.sleep(0)
        for helper in pages.helpers:
            helper.process.kill()
        found = await asyncio.gather(*asked)
        assert not pages.has_helpers
        return list(found)

    assert ask_helpers(1, tmp_path, ask_for_all) == [b"", b"", b""]


def is_dead(process: int) -> bool:
    """Gone, or gone but for a parent that has yet to ask for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
