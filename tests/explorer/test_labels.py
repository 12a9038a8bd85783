"""Labels and lists over HTTP; a list and the set file of the command line are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ffmem.explorer.context import StudyContext
from ffmem.memories.edits import read_set
from tests.explorer.conftest import HOSTILE, client_for


@pytest.fixture
def client(app: FastAPI, explored: StudyContext, tmp_path: Path) -> Iterator[TestClient]:
    """The study with a database of its own, which is not there yet."""
    context = replace(explored, database=str(tmp_path / "labels.sqlite"))
    with client_for(app, context) as client:
        yield client
    context.annotations.close()


def test_a_label_and_a_note_are_kept_and_shown_as_text(client: TestClient) -> None:
    cell = client.get("/api/memories/L2.7").json()["page"]["address"]
    path = f"/api/memories/{cell}/label"
    nothing = {"label": "", "note": "", "lists": [], "known_lists": []}
    assert client.get(path).json() == nothing
    given = {"label": HOSTILE, "note": f"two\nlines of {HOSTILE}"}
    assert client.put(path, json=given).json() == nothing | given
    page = client.get("/lists").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    table = client.get("/labels.csv").text
    assert cell in table
    client.put(path, json={"label": "=1+1"})
    assert "'=1+1" in client.get("/labels.csv").text  # no spreadsheet runs it
    assert "cannot be seen" in client.put(path, json={"label": "a\u202eb"}).json()["detail"]
    assert client.put(path, json={"label": "a\nb"}).status_code == 422
    assert client.put(path, json={"label": "x" * 201}).status_code == 422
    assert client.put("/api/memories/L9.1/label", json={}).status_code == 404


def test_a_list_is_the_set_of_the_command_line(
    client: TestClient, explored: StudyContext, tmp_path: Path
) -> None:
    cells = [str(cell) for cell in explored.store.cells.addresses([3, 70, 71])]
    text = "# mine\n" + "\n".join(cells[:2]) + f"\n{cells[2]}  # the last\n"
    added = client.post("/api/lists/my places", json={"text": text})
    assert added.json() == {"changed": 3}
    found = client.get("/api/lists/my places").json()
    assert [one["address"] for one in found["memories"]] == cells
    assert found["memories"][0]["promotes"]
    file = tmp_path / "set.txt"
    file.write_text(client.get("/lists/my places/memories.txt").text)
    assert [str(one) for one in read_set(file)] == cells
    assert cells[0] in client.get("/lists/my places").text
    assert cells[0] in client.get("/lists/my places/memories.csv").text
    assert client.delete(f"/api/lists/my places/{cells[0]}").json() == {"changed": 1}
    assert client.delete(f"/api/lists/my places/{cells[0]}").json() == {"changed": 0}
    starred = client.put(f"/api/lists/starred/{cells[0]}")
    assert starred.json() == {"changed": 1}
    label = client.get(f"/api/memories/{cells[0]}/label").json()
    assert (label["lists"], label["known_lists"]) == (["starred"], ["starred", "my places"])
    assert client.get("/lists/nothing").status_code == 404
    assert client.get("/lists/nothing/memories.txt").status_code == 404


def test_a_gated_memory_named_whole_is_both_of_its_cells_and_whole_again(
    client: TestClient, explored: StudyContext
) -> None:
    client.post("/api/lists/whole", json={"text": "L2.7"})
    found = [one["address"] for one in client.get("/api/lists/whole").json()["memories"]]
    assert len(found) == len(explored.store.cells.signs)
    lines = client.get("/lists/whole/memories.txt").text.splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["L2.7"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("L2.7\nriver", "line 2 of the text"),
        ("# nothing", "holds no address"),
        ("L99.1", "no layer 99"),
    ],
)
def test_a_wrong_set_is_refused_whole(client: TestClient, text: str, says: str) -> None:
    answer = client.post("/api/lists/wrong", json={"text": text})
    assert answer.status_code == 404
    assert says in answer.json()["detail"]
    assert client.get("/api/lists").json()["lists"] == []


def test_a_memory_can_be_downloaded(client: TestClient, explored: StudyContext) -> None:
    cell = explored.store.cells.address(3)
    table = client.get(f"/memory/{cell}/triggers.csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert len(table.text.splitlines()) >= 1 + len(explored.store.triggers(cell))
    picture = client.get(f"/memory/{cell}/picture.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.text.startswith("<svg")
    assert f"Memory {cell}" in picture.text
