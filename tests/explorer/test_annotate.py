"""The annotation pages: blind, checked, saved to the records of the sheets, several at once."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ffmem.annotations.agreement import agreement, patterns_by_annotator
from ffmem.annotations.answer_rules import check
from ffmem.annotations.chat import Message, Reply
from ffmem.annotations.database import Annotations
from ffmem.annotations.llm_annotator import ask_about_sheet
from ffmem.annotations.markdown import parse_sheet, sheet_text
from ffmem.annotations.sheets import PatternAnswer, Sheet, draw_sheets
from ffmem.errors import StoreError
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext
from ffmem.explorer.queries.memory import memory_patterns
from ffmem.records import json_text
from tests.annotations.served import reply
from tests.annotations.test_answer_rules import BAD, to_answers
from tests.explorer.conftest import client_for

NAMES_REFUSED = ["", "  ", "x" * 81, "rules", " rules ", "a\u0000b", "a\tb", "a\u200bb", "a\nb"]
PATTERN = {"description": "ends  with a river", "kind": "shallow", "ranks": [4, 1, 2]}


@pytest.fixture
def annotated(explored: StudyContext, tmp_path: Path) -> Iterator[StudyContext]:
    """The same study with an empty database of its own."""
    fresh = replace(explored, database=str(tmp_path / "notes.sqlite"))
    yield fresh
    fresh.annotations.close()


@pytest.fixture
def client(app: FastAPI, annotated: StudyContext) -> Iterator[TestClient]:
    with client_for(app, annotated) as asking:
        yield asking


def drawn(client: TestClient) -> list[str]:
    assert client.post("/api/sheets", json={"keys": 2}).status_code == 200
    return [line["name"] for line in client.get("/api/sheets").json()["sheets"]]


def put(client: TestClient, name: str, annotator: str, *patterns: dict[str, Any]) -> Any:
    body = json.dumps({"annotator": annotator, "patterns": list(patterns)})
    headers = {"Content-Type": "application/json"}
    return client.put(f"/api/sheets/{name}/answer", content=body, headers=headers)


def test_a_memory_shows_what_people_said_last_whenever_they_said_it(
    annotated: StudyContext,
) -> None:
    """Answers in a file are read at once for all pages, and again when it has changed."""
    sheet = next(one for one in draw_sheets(annotated.store, keys=1) if one.key is not None)
    annotated.annotations.add_sheets([sheet])
    file, key = Path(annotated.database or ""), str(sheet.key)

    def descriptions() -> list[str]:
        return [one.description for one in memory_patterns(annotated, key) if one.annotator == "a"]

    for turn, words in enumerate(["ends with a river", "ends with a stone", "ends with a tree"]):
        annotated.annotations.answer(sheet, "a", [PatternAnswer(words, "shallow", (1, 2, 3))])
        assert descriptions() == [words]  # just written
        os.utime(file, (turn, turn))
        assert descriptions() == [words]  # written long ago
        assert descriptions() == [words]


def test_the_sheets_are_those_that_the_command_draws(
    client: TestClient, annotated: StudyContext
) -> None:
    expected = [sheet.name for sheet in draw_sheets(annotated.store, keys=2)]
    assert drawn(client) == expected
    assert client.post("/api/sheets", json={"keys": 2}).json() == {"new": 0}


def test_more_sheets_can_be_drawn_and_those_without_an_answer_discarded(
    client: TestClient, annotated: StudyContext
) -> None:
    layers = len(annotated.store.memories)
    page = client.get("/annotate").text
    assert f'At most <b id="many">{12 * layers}</b>, of which <b id="blind">{2 * layers}' in page
    first = drawn(client)
    assert len(first) <= (2 + 2) * layers  # two keys of each layer, a control of each kind
    put(client, first[0], "ana", PATTERN)
    new = client.post("/api/sheets", json={"keys": 4}).json()["new"]
    assert 0 < new <= 2 * layers
    assert client.post("/api/sheets", json={"keys": 4}).json() == {"new": 0}
    assert client.delete("/api/sheets").json() == {"discarded": len(first) + new - 1}
    assert [line["name"] for line in client.get("/api/sheets").json()["sheets"]] == first[:1]
    assert client.delete("/api/sheets").json() == {"discarded": 0}
    said = client.get(f"/api/sheets/{first[0]}/answer", params={"annotator": "ana"}).json()["said"]
    assert said[0]["description"] == "ends with a river"
    assert "Draw more, or discard" in client.get("/annotate").text


def test_an_answer_is_the_same_record_as_a_sheets(
    client: TestClient, annotated: StudyContext
) -> None:
    name = drawn(client)[0]
    assert put(client, name, "mara", PATTERN).json() == {"sheet": name, "new": True}
    assert put(client, name, "mara", PATTERN).json() == {"sheet": name, "new": False}
    elsewhere = Annotations.open(str(annotated.database))
    (saying,) = elsewhere.answers()
    elsewhere.close()
    assert saying.annotator == "mara"
    assert [(s.description, s.kind, s.ranks) for s in saying.answers] == [
        ("ends with a river", "shallow", (1, 2, 4))
    ]
    said = client.get(f"/api/sheets/{name}/answer", params={"annotator": "mara"}).json()["said"]
    assert [each["ranks"] for each in said] == [[1, 2, 4]]
    assert client.get(f"/api/sheets/{name}/answer").json()["said"] is None


def test_that_nothing_repeats_is_an_answer_too(client: TestClient) -> None:
    first, second = drawn(client)[:2]
    assert put(client, first, "mara").status_code == 200
    found = client.get("/api/sheets", params={"annotator": "mara"}).json()
    assert [line["name"] for line in found["sheets"] if line["answered"]] == [first]
    assert found["progress"] == [{"annotator": "mara", "answered": 1, "chosen": 0}]
    onward = client.get("/annotate/next?annotator=mara", follow_redirects=False)
    assert onward.headers["location"] == f"/annotate/{second}?annotator=mara"


def test_neither_page_nor_answer_tells_a_control_from_a_key(
    client: TestClient, annotated: StudyContext
) -> None:
    drawn(client)
    for sheet in annotated.annotations.sheets():
        found = client.get(f"/api/sheets/{sheet.name}/answer").json()
        assert set(found) == {"name", "address", "prefixes", "said"}
        assert found["address"] is None
        page = client.get(f"/annotate/{sheet.name}?annotator=mara").text
        assert "control" not in page
        assert sheet.key is None or f"{sheet.key}<" not in page


HALF_SAID: list[tuple[dict[str, Any], int, str]] = [
    ({"ranks": [1, 2]}, 400, "needs 3 different prefixes"),
    ({"ranks": [1, 1, 2]}, 400, "named twice"),
    ({"ranks": [1, 2, 3, 3]}, 400, "named twice"),
    ({"ranks": [1, 2, True]}, 422, "valid integer"),
    ({"ranks": [1, 2, "3"]}, 422, "valid integer"),
    ({"ranks": [1, 2, 99]}, 400, "not among"),
    ({"description": "  "}, 400, "description is empty"),
    ({"description": "\ud800abc"}, 400, "cannot be saved"),
    ({"kind": "deep"}, 400, "class"),
    ({"kind": 3}, 422, "kind"),
]


def test_what_is_half_said_is_refused(client: TestClient, annotated: StudyContext) -> None:
    sheet = drawn(client)[0]
    for changes, status, says in HALF_SAID:
        answer = put(client, sheet, "mara", PATTERN | changes)
        assert answer.status_code == status, changes
        assert says in answer.json()["detail"], changes
    assert annotated.annotations.answers() == []


def by_hand(sheet: Sheet, said: list[tuple[str, str, list[int]]]) -> str:
    """The sheet as somebody fills it in who says that."""
    text = sheet_text(sheet).partition("### Pattern 1")[0]
    for words, kind, ranks in said:
        numbers = ", ".join(map(str, ranks))
        text += f"### Pattern\n\nDescription: {words}\nClass: {kind}\nPrefixes: {numbers}\n\n"
    return text


def test_every_door_refuses_a_bad_answer_for_the_same_reason(
    client: TestClient, annotated: StudyContext
) -> None:
    sheet = next(s for s in draw_sheets(annotated.store, keys=2) if len(s.prefixes) >= 4)
    assert sheet.name in drawn(client)
    for case in BAD:
        refuse_at_every_door(client, sheet, case)
    assert annotated.annotations.answers() == []


def refuse_at_every_door(client: TestClient, sheet: Sheet, case: str) -> None:
    said, pattern, field, _ = BAD[case]
    reason = check(to_answers(said), sheet)[0].message

    fields = [{"description": words, "kind": kind, "ranks": r} for words, kind, r in said]
    answer = put(client, sheet.name, "mara", *fields)
    assert answer.status_code == 400, case
    assert answer.json() == {"detail": f"pattern {pattern}: {reason}"}, case

    text = by_hand(sheet, said)
    headings = [n for n, line in enumerate(text.split("\n"), 1) if line == "### Pattern"]
    line = headings[pattern - 1] + 2 + ("description", "class", "prefixes").index(field)
    with pytest.raises(StoreError) as refusal:
        parse_sheet(text, "a.md", {sheet.name: sheet})
    assert str(refusal.value) == f"a.md, line {line}: {reason}", case

    asked: list[str] = []

    def chat(messages: Sequence[Message]) -> Reply:
        asked.append(messages[-1]["content"])
        return Reply(reply(*said), 0, 0)

    ask_about_sheet(chat, sheet)
    assert f"- pattern {pattern}: {reason}" in asked[1].splitlines(), case


def test_a_name_is_needed_that_is_nobody_elses(client: TestClient) -> None:
    sheet = drawn(client)[0]
    for name in NAMES_REFUSED:
        assert put(client, sheet, name, PATTERN).status_code in (400, 422), name


def test_the_description_of_names_is_what_is_checked(client: TestClient) -> None:
    schemas = client.get("/api/openapi.json").json()["components"]["schemas"]
    described = schemas["AnswerInput"]["properties"]["annotator"]
    for name in NAMES_REFUSED:
        fits = described["minLength"] <= len(name) <= described["maxLength"]
        assert not (fits and re.search(described["pattern"], name)), name
    sheet = drawn(client)[0]
    for name in ("Zoë Müller", "李", " mara ", "rules of thumb", "x" * 80):
        assert re.search(described["pattern"], name), name
        assert put(client, sheet, name, PATTERN).status_code == 200


def test_a_picked_memory_can_be_annotated_and_stays_out_of_the_study(
    client: TestClient, annotated: StudyContext
) -> None:
    address = next(s.key for s in draw_sheets(annotated.store, keys=2) if s.key is not None)
    where = f"/api/memories/{address}/answer"
    body = {"annotator": "mara", "patterns": [PATTERN]}
    assert client.put(where, json=body).status_code == 200
    assert client.get(where, params={"annotator": "mara"}).json()["address"] == address
    shown = client.get(f"/api/memories/{address}").json()["patterns"]
    assert [(p["description"], p["annotator"]) for p in shown] == [("ends with a river", "mara")]
    sayings = annotated.annotations.answers()
    assert agreement(sayings).false_patterns == {}
    with pytest.raises(StoreError, match="'mara'"):
        patterns_by_annotator(annotated.store, sayings, "mara")


def test_agreement_is_that_of_the_records(client: TestClient, annotated: StudyContext) -> None:
    names = drawn(client)
    for name in names:
        put(client, name, "mara", PATTERN)
        put(client, name, "jon", PATTERN | {"kind": "semantic", "ranks": [1, 2, 3]})
    expected = agreement(annotated.annotations.answers())
    found = client.get("/api/agreement").json()
    assert found["alpha"] == pytest.approx(expected.alpha)
    assert [pair["kappa"] for pair in found["pairs"]] == pytest.approx(
        [pair.kappa for pair in expected.pairs]
    )
    assert found == json.loads(json_text(expected))
    page = client.get("/annotate/agreement")
    assert page.status_code == 200
    assert "mara" in page.text


def test_several_people_at_once_lose_nothing(client: TestClient, annotated: StudyContext) -> None:
    by_several_people(client, annotated)


def test_several_people_at_once_on_postgresql(
    explored: StudyContext,
    postgres: str,
) -> None:
    shared = replace(explored, database=postgres)
    with TestClient(create_app(shared), base_url="http://127.0.0.1:8600") as asking:
        by_several_people(asking, shared)
        assert asking.get("/annotate/agreement").status_code == 200
    shared.annotations.close()


def by_several_people(client: TestClient, annotated: StudyContext) -> None:
    """Four people answer five sheets each at the same time."""
    names, wrong = drawn(client), []

    def annotate(who: str) -> None:
        for name in names[:5]:
            if put(client, name, who, PATTERN).status_code != 200:
                wrong.append(name)

    people = [threading.Thread(target=annotate, args=(f"person {n}",)) for n in range(4)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert not wrong
    scan = annotated.store.manifest.key.digest
    assert len(annotated.annotations.answers(scan)) == 4 * len(names[:5])


ELSEWHERE = (
    {"Origin": "http://elsewhere.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "elsewhere.example"},
)


def test_another_site_cannot_write(client: TestClient, annotated: StudyContext) -> None:
    name = drawn(client)[0]
    body = {"annotator": "mara", "patterns": [PATTERN]}
    for headers in ELSEWHERE:
        for method, path in (("PUT", f"/api/sheets/{name}/answer"), ("POST", "/api/sheets")):
            answer = client.request(method, path, json=body, headers=headers)
            assert answer.status_code == 403, headers
    assert annotated.annotations.answers() == []


def test_a_form_of_another_kind_is_not_taken_for_json(client: TestClient) -> None:
    name = drawn(client)[0]
    text = '{"annotator": "mara", "patterns": []}'
    answer = client.put(
        f"/api/sheets/{name}/answer", content=text, headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 422


def test_a_sheet_that_is_not_there_is_a_sentence(client: TestClient) -> None:
    for path in ("/annotate/00000000", "/api/sheets/00000000/answer"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "no sheet" in answer.text
