"""Damage of an open study is a sentence on the page."""

from __future__ import annotations

import html
import shutil
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.store.scan_store import ScanStore


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
    assert f"{path} has changed since it was written; delete the folder" in html.unescape(
        answer.text
    )
