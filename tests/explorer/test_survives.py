"""What the page said was saved is there after the server was killed, without a word to it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx

from ffmem.annotations.database import Annotations
from ffmem.annotations.sheets import draw_sheets
from ffmem.store.scan_store import ScanStore
from tests.explorer.served import started
from tests.waiting import LONGEST


def test_an_annotation_survives_the_server(study: ScanStore, tmp_path: Path) -> None:
    """Several saves, killed right after the answer to the last one; nothing is lost or torn."""
    database = tmp_path / "notes.sqlite"
    server, port = started(study, "--database", str(database))
    try:
        names = [sheet.name for sheet in draw_sheets(study, keys=2)][:5]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONGEST) as client:
            client.post("/api/sheets", json={"keys": 2}).raise_for_status()
            for number, name in enumerate(names):
                pattern = {"description": f"text {number}", "kind": "shallow", "ranks": [1, 2, 3]}
                body = {"annotator": "mara", "patterns": [pattern]}
                client.put(f"/api/sheets/{name}/answer", json=body).raise_for_status()
            os.kill(server.pid, signal.SIGKILL)
    finally:
        server.kill()
        server.communicate()
    opened = Annotations.open(str(database))
    found = {saying.sheet.name: saying.said[0].description for saying in opened.answers()}
    opened.close()
    assert found == {name: f"text {number}" for number, name in enumerate(names)}
