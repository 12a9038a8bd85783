"""Studies side by side, as pages and as data; one study alone says how to add another."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ffmem.analyses.catalogue import CLAIMS
from ffmem.analyses.study import Study
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.explorer.queries.compare import studies_beside
from ffmem.models.loading import load
from ffmem.records import to_plain
from ffmem.report.comparison import compare, summarise
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import FEW_LINES, scanned_lines


@pytest.fixture(scope="module")
def both(study: ScanStore, gated_study: ScanStore) -> Iterator[TestClient]:
    explored = open_context(study.folder.root, others=[gated_study.folder.root])
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as asking:
        yield asking


def test_the_numbers_are_those_of_the_comparison(
    both: TestClient, study: ScanStore, gated_study: ScanStore
) -> None:
    expected = compare([summarise(Study(study)), summarise(Study(gated_study))])
    found = both.get("/api/compare").json()
    assert [side["label"] for side in found["studies"]] == ["tiny:opt", "tiny:llama"]
    assert found == to_plain(expected)
    assert found["figures"], "the values of both were analysed"


def test_figures_of_both_are_drawn_on_one_picture(both: TestClient) -> None:
    name = both.get("/api/compare").json()["figures"][0]["name"]
    picture = both.get(f"/compare/{name}.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "tiny:opt" in picture.text
    assert "tiny:llama" in picture.text
    assert len(both.get(f"/api/compare/{name}").json()["hconcat"]) == 2
    for path in ("/compare/nothing.svg", "/api/compare/nothing"):
        assert both.get(path).status_code == 404


def test_the_page_shows_every_claim(both: TestClient) -> None:
    page = both.get("/compare").text
    assert page.count("<tr><td") == len(CLAIMS)
    table = page.partition('class="claims"')[2].partition("</table>")[0]
    assert "\u00a0%" in table
    assert not re.search(
        r"\d %|\d \.\. ", re.sub(r'title="[^"]*"', "", table)
    )  # lines never end there


def test_one_study_alone_says_how_to_add_another(client: TestClient) -> None:
    assert "--with" in client.get("/compare").text
    assert client.get("/api/compare").json() == {"studies": [], "figures": []}


def test_a_study_beside_itself_has_not_moved(study: ScanStore) -> None:
    explored = open_context(study.folder.root, others=[study.folder.root])
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as client:
        found = client.get("/api/compare/memories?count=5").json()
        assert found["total"] == study.cells.count
        assert found["drifts"][0]["drift"] < 1e-6
        matched = client.get("/api/compare/memories?match=true&layer=2&count=5").json()
        assert [one["address"] for one in matched["matches"]][0].startswith("L2.")
        assert matched["matches"][0]["score"] > 0.99 > matched["bar"]
        exact = client.get("/api/compare/memories?weights=true&count=5").json()
        assert found["drifts"][0]["key"] is None
        assert max(one["key"] for one in exact["drifts"]) < 1e-6
        assert max(layer["key"] for layer in exact["layers"]) < 1e-6
        text = client.get("/compare/memories.csv?weights=true").text
        table = list(csv.reader(io.StringIO(text)))
        assert table[0][:6] == ["address", "drift", "key", "triggers", "value", "fires"]
        assert len(table) == study.cells.count + 1
        page = client.get("/compare/memories?weights=true").text
        assert ">Key</th>" in page
        page = client.get("/compare/memories").text
        assert ">Key</th>" not in page
        assert "Memory by memory" in page
        assert client.get("/compare/memories?with=7").status_code == 404
        assert client.get("/api/compare/memories?layer=77").status_code == 404


def test_a_model_that_is_not_there_is_named_beside_the_form(
    study: ScanStore, tmp_path: Path
) -> None:
    gone = replace(load("tiny:opt"), name="models/gone")
    scanned_lines(gone, tmp_path / "other", FEW_LINES, top=30, sample=8)
    explored = open_context(study.folder.root, others=[tmp_path / "other"])
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as client:
        page = client.get("/compare/memories?weights=true")
        assert page.status_code == 200
        assert "models/gone" in page.text.partition('action="/compare/memories"')[0]
        assert '<th scope="row"><a href="/memory/L' in page.text  # all but the keys is there
        assert 'name="weights"' in page.text


def test_different_models_are_matched_by_triggers(both: TestClient) -> None:
    found = both.get("/api/compare/memories").json()
    # The toys were scanned from files of their own with the same lines: one text.
    assert found["drifts"] == []
    assert found["matches"]
    assert 0 <= found["share"] <= 1


def test_a_study_alone_names_those_beside_it(study: ScanStore, tmp_path: Path) -> None:
    """Scans in the same folder and scanned controls inside; nothing else."""
    mine = tmp_path / "mine"
    shutil.copytree(study.folder.root, mine)
    for name in ("a b/manifest.json", "empty/else.json", "mine/control-x/manifest.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    alone = open_context(mine)
    assert studies_beside(alone) == [tmp_path / "a b", mine / "control-x"]
    with TestClient(create_app(alone), base_url="http://127.0.0.1:8600") as asking:
        page = unescape(asking.get("/compare").text)
    assert f"ffmem explore {mine} --with '{tmp_path}/a b'" in page
    assert f"--with {mine}/control-x" in page
