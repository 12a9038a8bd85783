"""A study whose values are not ranked: pages show what is known, and how to get the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import ffmem
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


def test_one_value_is_projected_by_the_model(pages: TestClient) -> None:
    assert 'data-path="/value"' in pages.get("/memory/L1.0").text
    found = pages.get("/api/memories/L1.0/value?count=4").json()
    expected = ffmem.value_tokens(ffmem.load("tiny:opt"), "L1.0", 4)
    assert [one["token"] for one in found["promoted"]] == expected.texts[0]
    assert [one["logit"] for one in found["promoted"]] == pytest.approx(expected.logits[0].tolist())
    assert found["probability"] == pytest.approx(expected.probabilities[0, 0].item())
    below = [one["logit"] for one in found["suppressed"]]
    assert below == sorted(below)
    assert below[-1] < found["promoted"][-1]["logit"]


@pytest.mark.parametrize("question", ["by=promotes&q=e", "by=any&sort=probability"])
def test_a_search_by_tokens_says_which_command_ranks_them(pages: TestClient, question: str) -> None:
    for path in (f"/search?{question}", f"/api/search?{question}"):
        answer = pages.get(path)
        assert answer.status_code >= 400
        assert "without --no-values" in answer.text
