"""Damage of an open study, or of its database of annotations, is a sentence on the page."""

from __future__ import annotations

import html
import shutil
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ffmem.errors import DatabaseError
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.store.scan_store import ScanStore

HERE = "http://127.0.0.1:8600"


def test_a_damaged_index_is_a_sentence_on_the_page(study: ScanStore, tmp_path: Path) -> None:
    """The index is damaged while it is open, beyond what opening would have seen."""
    folder = Path(shutil.copytree(study.folder.root, tmp_path / "study"))
    explored = open_context(folder, "tiny:opt")
    path = folder / "prepared" / "promoted.npy"
    tokens = np.load(path)
    explored.lookup.arrays["promoted"] = np.full_like(tokens, 1_000_000)  # no such token
    with TestClient(create_app(explored), base_url=HERE) as client:
        before = {"Referer": f"{HERE}/search?by=any&q=a%20b"}
        whole = client.get("/memory/L2.7", headers=before)  # every digest is right: a forgery
        assert whole.status_code == 500
        assert "default-src 'none'" in whole.headers["content-security-policy"]
        assert 'href="/search?by=any&amp;q=a%20b"' in whole.text
        assert 'href="/">Overview' in whole.text
        said = client.get("/api/memories/L2.7").json()["detail"]
        assert f"{folder} is damaged or was not written by ffmem (IndexError: " in said
        assert "if ffmem wrote it, report this as a bug" in said
        np.save(path, np.full_like(tokens, 1_000_000))
        answer = client.get("/memory/L2.7")
    assert answer.status_code == 500
    assert f"{path} has changed since it was written; delete the folder" in html.unescape(
        answer.text
    )


def test_a_database_that_is_gone_is_a_sentence_for_reads_and_writes(
    study: ScanStore, tmp_path: Path
) -> None:
    """A page, its data and what is saved: 503 until the database is back."""
    file, away = tmp_path / "notes.sqlite", tmp_path / "away.sqlite"
    explored = open_context(study.folder.root, "tiny:opt", database=str(file))
    label = {"label": "rivers"}
    with TestClient(create_app(explored), base_url=HERE) as client:
        assert client.put("/api/memories/L2.7/label", json=label).status_code == 200
        file.rename(away)
        file.mkdir()
        for answer in (
            client.get("/lists"),
            client.get("/memory/L2.7"),
            client.get("/api/memories/L2.7/label"),
            client.get("/api/sheets"),
            client.put("/api/memories/L2.7/label", json={"label": "stones"}),
            client.post("/api/sheets", json={"keys": 1}),
        ):
            assert answer.status_code == 503
            assert f"the annotations in {file} cannot be" in answer.text
        file.rmdir()
        away.rename(file)
        assert client.get("/api/memories/L2.7/label").json()["label"] == "rivers"


def test_a_database_that_cannot_be_opened_is_told_at_once(study: ScanStore, tmp_path: Path) -> None:
    file = tmp_path / "notes.sqlite"
    file.write_text("A letter to a friend. " * 100)
    with pytest.raises(DatabaseError, match="another program's file"):
        open_context(study.folder.root, "tiny:opt", database=str(file))
