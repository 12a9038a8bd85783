"""A study of a mixture of experts: every analysis runs on it, and its pages link its experts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.statistics import wilson
from ffmem.analyses.study import Study
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from tests.explorer.test_in_a_browser import page_of, serving

KIND = "tiny:deepseek_v3"


@pytest.fixture(scope="module")
def study(mixture_study: Study) -> Study:
    return mixture_study


@pytest.fixture(scope="module")
def client(study: Study) -> Iterator[TestClient]:
    root: Path = study.store.folder.root
    app = create_app(open_context(root, KIND))
    with TestClient(app, base_url="http://127.0.0.1:8600") as asking:
        yield asking


def test_pages_of_experts_lead_to_their_neighbours(client: TestClient) -> None:
    found = client.get("/api/memories/L2.E1.0+").json()
    assert (found["previous"], found["next"]) == ("L2.E0.15+", "L2.E1.1+")
    shared = client.get("/api/memories/L2.S.15-").json()
    assert (shared["previous"], shared["next"]) == ("L2.S.14-", "L3.E0.0-")
    assert client.get("/api/memories/L2.E0.0+").json()["previous"] == "L1.63+"
    page = client.get("/memory/L2.E1.0+")
    assert page.status_code == 200
    assert "L2.E0.15" in page.text
    assert "0 of expert 1 of layer 2" in page.text
    counts = found["page"]["counts"]
    share = 100 * counts["expert"]["routed"] / counts["prefixes"]
    assert f"chooses its expert for {share:.2f} % of the prefixes" in page.text.replace(
        "&nbsp;", " "
    )
    assert "15 of shared expert of layer 2" in client.get("/memory/L2.S.15-").text
    assert "chooses its expert" not in client.get("/memory/L1.63+").text
    wrong = client.get("/api/memories/L2.5+")
    assert wrong.status_code == 404
    assert "E0 to E3 and S" in wrong.text


def test_live_questions_and_prompts_know_experts(client: TestClient) -> None:
    near = client.get("/api/memories/L2.E1.3+/nearest").json()
    names = {one["address"] for side in near.values() for one in side}
    assert names
    assert any(".E" in name for name in names)
    asked = {"text": "the river", "edit": ["L2.E1=0", "L3.S.2*2"]}
    answer = client.get("/api/prompt", params=asked)
    assert answer.status_code == 200, answer.text


def test_the_data_frame_names_every_cell_once(study: Study) -> None:
    frame = study.memories()
    assert frame["address"].is_unique
    assert {"L1.0+", "L2.E3.15-", "L3.S.0+"} <= set(frame["address"])
    assert frame["expert"].tolist() == [Address.parse(one).part for one in frame["address"]]
    assert set(frame["expert"]) == {"", "E0", "E1", "E2", "E3", "S"}


def test_the_page_of_experts_has_a_row_for_each(client: TestClient, study: Study) -> None:
    page = client.get("/experts")
    assert page.status_code == 200
    links = [unescape(one) for one in re.findall(r'<th scope="row"><a href="([^"]+)"', page.text)]
    assert len(links) == 8
    listed = client.get(links[1].replace("/search", "/api/search", 1)).json()
    assert listed["total"] == 2 * 16
    assert all(hit["address"].startswith("L2.E1.") for hit in listed["hits"])
    assert 'href="/experts"' in client.get("/").text
    found = client.get("/api/experts").json()
    assert [one["layer"] for one in found["result"]["layers"]] == [2, 3]
    kinds = {one["kind"]: one for one in found["patterns"]}
    drawn = [address for keys in study.result("patterns").drawn.values() for address in keys]
    assert sum(one["memories"] for one in kinds.values()) == len(drawn)
    routed = [address for address in drawn if ".E" in address]
    patterns = [one for one in study.result("patterns").records if str(one.key) in routed]
    assert kinds["routed experts"]["memories"] == len(routed)
    assert kinds["routed experts"]["patterns"] == len(patterns)


def test_a_study_without_experts_has_no_such_page(toy_study: Study) -> None:
    app = create_app(open_context(toy_study.folder))
    with TestClient(app, base_url="http://127.0.0.1:8600") as asking:
        assert 'href="/experts"' not in asking.get("/").text
        assert asking.get("/experts").status_code == 404
        assert "no experts" in asking.get("/api/experts").text


def test_an_expert_that_is_never_chosen_has_a_row_too(
    client: TestClient, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its specialisation and agreement are not numbers."""
    found = study.result("experts")
    first = replace(found.experts[0], specialisation=math.nan, agreement=wilson(0, 0))
    changed = replace(found, experts=(first, *found.experts[1:]))
    explored = client.app.state.context  # type: ignore[attr-defined]
    monkeypatch.setitem(explored.study._results, "experts", changed)
    answer = client.get("/api/experts")
    assert answer.status_code == 200
    assert answer.json()["result"]["experts"][0]["specialisation"] is None
    page = client.get("/experts")
    assert page.status_code == 200
    assert "nan" not in page.text


def test_experts_in_a_browser(browser: Any, study: Study) -> None:
    """Living figures as wide as a phone, nothing to complain of, a whole expert silenced."""
    from axe_playwright_python.sync_playwright import Axe

    study.draw(["experts"])
    context = browser.new_context(color_scheme="dark", viewport={"width": 390, "height": 900})
    page, complaints = page_of(context)
    with serving(open_context(study.store.folder.root, KIND)) as address:
        page.goto(f"{address}/experts")
        page.locator(".living").first.scroll_into_view_if_needed()
        page.locator(".living svg").first.wait_for()
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.goto(f"{address}/prompt?text=river")
        page.locator("#change-memory summary").click()
        page.get_by_label("Memory", exact=True).fill("l2.e1")
        page.get_by_role("button", name="Change", exact=True).click()
        page.locator("#changes li", has_text="L2.E1 silenced").wait_for()
    assert complaints == []
    context.close()
