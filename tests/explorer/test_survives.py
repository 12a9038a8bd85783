"""What the page said was saved is there after the server was killed, without a word to it."""

from __future__ import annotations

import html
import os
import shutil
import signal
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from ffmem.annotations.database import Annotations
from ffmem.annotations.sheets import draw_sheets
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
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


def test_a_damaged_index_is_a_sentence_on_the_page(study: ScanStore, tmp_path: Path) -> None:
    """The index is damaged while it is open, beyond what opening would have seen."""
    folder = Path(shutil.copytree(study.folder.root, tmp_path / "study"))
    explored = open_context(folder, "tiny:opt")
    path = folder / "prepared" / "promoted.npy"
    tokens = np.load(path)
    explored.lookup.arrays["promoted"] = np.full_like(tokens, 1_000_000)  # no such token
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as client:
        with pytest.raises(IndexError):  # the file is whole: a bug, and shown as one
            client.get("/memory/L2.7")
        np.save(path, np.full_like(tokens, 1_000_000))
        answer = client.get("/memory/L2.7")
    assert answer.status_code == 400
    assert f"{path} is not as it was written; delete the folder" in html.unescape(answer.text)
