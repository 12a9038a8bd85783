"""A study whose values are not ranked: pages show what is known, and how to get the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ffmem.explorer.app import create_app
from ffmem.workflows import run_scan
from tests.analyses.conftest import FEW_LINES
from tests.explorer.conftest import context_of


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder: Path = tmp_path_factory.mktemp("unranked") / "study"
    scanned = run_scan("tiny:opt", FEW_LINES, folder, splitter="line", values=False)
    return TestClient(create_app(context_of(scanned.store)), base_url="http://127.0.0.1:8600")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/search?by=words&q=river",
        "/search?by=any&sort=fires",
        "/memory/L1.0/triggers.csv",
        "/memory/L1.0/picture.svg",
        "/prompt",
    ],
)
def test_pages_that_need_no_ranking_are_there(pages: TestClient, path: str) -> None:
    assert pages.get(path).status_code == 200


def test_a_memory_has_its_triggers_and_says_how_its_value_is_ranked(pages: TestClient) -> None:
    page = pages.get("/memory/L1.0")
    assert page.status_code == 200
    assert "without <code>--no-values</code>" in page.text
    assert 'class="coefficient"' in page.text
    found = pages.get("/api/memories/L1.0").json()["page"]
    assert (found["probability"], found["promoted"]) == (None, [])


@pytest.mark.parametrize("question", ["by=promotes&q=e", "by=any&sort=probability"])
def test_a_search_by_tokens_says_which_command_ranks_them(pages: TestClient, question: str) -> None:
    for path in (f"/search?{question}", f"/api/search?{question}"):
        answer = pages.get(path)
        assert answer.status_code >= 400
        assert "without --no-values" in answer.text
