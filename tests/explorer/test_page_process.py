"""The second process makes the same pages as the first, and nobody notices when it is gone."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.explorer.server import can_fork
from ffmem.store.scan_store import ScanStore
from tests.explorer.served import children, started
from tests.waiting import LONGEST, wait_until

PATHS = [
    "/memory/L2.7",
    "/memory/L1.3?triggers=3",
    "/search?by=any&sort=fires",
    "/memory/L9.1",
    "/search?layer=9",
]
pytestmark = pytest.mark.skipif(not can_fork(), reason="a process cannot be copied here")


def test_pages_come_from_the_helper_or_without_it(study: ScanStore) -> None:
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
            (helper,) = children(server.pid)
            os.kill(helper, signal.SIGSTOP)
            with pytest.raises(httpx.TimeoutException):
                client.get(PATHS[0], timeout=0.5)
            assert client.get("/api/memories/L2.7").status_code == 200  # not the helper's work
            os.kill(helper, signal.SIGCONT)
            assert found() == expected
            os.kill(helper, signal.SIGKILL)
            assert found() == expected
    finally:
        server.kill()
        server.communicate()


def test_what_was_annotated_a_moment_ago_is_on_the_page_and_the_helper_ends_with_its_server(
    study: ScanStore, tmp_path: Path
) -> None:
    copied = ScanStore.open(shutil.copytree(study.folder.root, tmp_path / "study"))
    server, port = started(copied)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONGEST) as client:
            assert "end in a stone" not in client.get(PATHS[0]).text
            for description in ("all end in a stone", "or end in a stone and a river"):
                pattern = {"description": description, "kind": "shallow", "ranks": [1, 2, 3]}
                body = {"annotator": "mara", "patterns": [pattern]}
                client.put("/api/memories/L2.7/answer", json=body).raise_for_status()
                assert description in client.get(PATHS[0]).text
        (helper,) = children(server.pid)
    finally:
        server.kill()
        server.communicate()
    wait_until(lambda: is_dead(helper), "the end of the helper")


def is_dead(process: int) -> bool:
    """Gone, or gone but for a parent that has yet to ask for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
