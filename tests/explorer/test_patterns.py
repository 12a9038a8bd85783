"""Patterns on request: found in the background, kept in the study, scored beside controls."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.patterns.findings import KeyFinding, PatternFinder, read_findings
from ffmem.annotations.chat import Message, Reply
from ffmem.annotations.explanations import QUESTIONS, matched_memories
from ffmem.annotations.llm_annotator import Explainer, list_choice, share_right
from ffmem.errors import FfmemError
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.store.scan_store import ScanStore
from tests.waiting import LONGEST, wait_until

pytestmark = pytest.mark.usefixtures("few_calibration_keys")


@pytest.fixture
def context(wordy_study: ScanStore, tmp_path: Path) -> StudyContext:
    shutil.copytree(wordy_study.folder.root, tmp_path / "study")
    return open_context(tmp_path / "study", "tiny:opt")


@pytest.fixture
def client(context: StudyContext) -> Iterator[TestClient]:
    with TestClient(create_app(context), base_url="http://127.0.0.1:8600") as asking:
        yield asking


def finish(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    def done() -> bool:
        return client.get(f"/api/jobs/{job['number']}").json()["state"] in ("done", "failed")

    wait_until(done, "the search for patterns")
    found: dict[str, Any] = client.get(f"/api/jobs/{job['number']}").json()
    return found


def test_patterns_are_found_kept_and_shown(client: TestClient, context: StudyContext) -> None:
    before = client.get("/api/memories/L2.7").json()
    assert (before["patterns"], before["findings"]) == ([], [])
    job = finish(client, client.post("/api/memories/L2.7/patterns").json())
    assert (job["state"], job["done"], job["share"]) == ("done", 1, 1.0)
    after = client.get("/api/memories/L2.7").json()
    (finding,) = after["findings"]
    assert (finding["annotator"], finding["controls"]) == ("rules", 4)
    assert len(finding["patterns"]) == len(after["patterns"]) == job["patterns"]
    slow = PatternFinder(context.store).by_rule(context.store.cells.address(64 + 7))
    assert {one.description for one in slow.patterns} == {
        one["description"] for one in after["patterns"]
    }
    page = client.get("/memory/L2.7").text
    assert "lists of random prefixes" in page
    again = finish(client, client.post("/api/memories/L2.7/patterns").json())
    assert again["number"] != job["number"]
    assert len(read_findings(context.store.folder, context.store.manifest.key.digest)) == 1


def test_a_search_result_and_a_layer_are_looked_at_memory_by_memory(
    client: TestClient, context: StudyContext
) -> None:
    asked = {"by": "any", "layer": 2, "sort": "fires", "where": "fires>0"}
    total = client.get("/api/search", params=asked).json()["total"]
    first = finish(client, client.post("/api/search/patterns", params=asked).json())
    assert (first["state"], first["keys"], first["done"]) == ("done", total, total)
    layer = client.post("/api/layers/2/patterns").json()
    assert layer["keys"] == total
    finish(client, layer)
    found = read_findings(context.store.folder, context.store.manifest.key.digest)
    assert len({one.key for one in found}) == len(found) == total
    assert client.post("/api/layers/9/patterns").status_code == 404
    assert client.get("/api/jobs/999").status_code == 404


def test_a_search_that_fails_says_why(context: StudyContext) -> None:
    def breaks(*_: object) -> Any:
        raise ValueError("no such luck")

    job = context.jobs.start([context.store.cells.address(0)], "a failure", breaks)
    wait_until(lambda: context.jobs.job(job.number).state == "failed", "the failure")  # type: ignore[union-attr]
    assert context.jobs.job(job.number).error == "ValueError: no such luck"  # type: ignore[union-attr]


def test_a_search_can_be_stopped_and_the_next_one_runs(context: StudyContext) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def waits(finder: PatternFinder, key: Address) -> KeyFinding:
        begun.set()
        assert go_on.wait(LONGEST)
        return KeyFinding(key, "rules", 0, (), (), 0, 0)

    cells = context.store.cells.addresses(range(3))
    first = context.jobs.start(cells, "one", waits)
    assert context.jobs.start(cells, "one", waits).number == first.number  # not twice
    second = context.jobs.start(cells, "two", waits)
    assert begun.wait(LONGEST)
    context.jobs.stop(first.number)
    go_on.set()
    wait_until(lambda: not context.jobs.job(second.number).busy, "the second")  # type: ignore[union-attr]
    ends = [context.jobs.job(one.number).state for one in (first, second)]  # type: ignore[union-attr]
    assert ends == ["stopped", "done"]


def test_what_was_found_before_a_stop_is_kept(context: StudyContext) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def waits(finder: PatternFinder, key: Address) -> KeyFinding:
        if key.index:
            begun.set()
            assert go_on.wait(LONGEST)
        return KeyFinding(key, "rules", 0, (), (), 0, 0)

    job = context.jobs.start(context.store.cells.addresses(range(3)), "one", waits)
    assert begun.wait(LONGEST)
    context.jobs.stop(job.number)
    go_on.set()
    kept = context.store.folder, context.store.manifest.key.digest
    wait_until(lambda: len(read_findings(*kept)) == 2, "the findings")


def test_a_language_model_explains_and_is_scored_on_both_sides(context: StudyContext) -> None:
    asked: list[str] = []

    def chat(messages: Sequence[Message]) -> Reply:
        """Ticks three prefixes; of two lists it takes the first."""
        asked.append(messages[-1]["content"])
        if messages[-1]["content"].startswith("Active on"):
            return Reply('{"list": "A"}', 100, 1)
        pattern = {"description": "ends in a stone", "class": "shallow", "prefixes": [1, 2, 3]}
        return Reply(json.dumps({"patterns": [pattern]}), 100, 1)

    with_model = replace(context, explainer=Explainer("toy", chat))
    with TestClient(create_app(with_model), base_url="http://127.0.0.1:8600") as client:
        assert "Ask toy" in client.get("/memory/L2.7").text
        job = finish(client, client.post("/api/memories/L2.7/explanation").json())
        assert job["state"] == "done", job["error"]
        found = client.get("/api/memories/L2.7").json()
        page = client.get("/memory/L2.7").text
    assert "lists of random prefixes" not in page  # a control of the rules, not of this model
    assert "from those of a matched memory" in page
    (finding,) = found["findings"]
    assert finding["annotator"] == "llm:toy"
    assert [one["description"] for one in found["patterns"]] == ["ends in a stone"]
    assert {one["against"] for one in finding["held_out"]} == {"random", "weak"}
    assert finding["output"] == {"questions": 6, "by_value": 0.5, "by_change": 0.5}
    assert len(asked) == 1 + 2 * 6 == QUESTIONS
    assert finding["usage"] == {"asked": 13, "read": 1300, "written": 13}
    assert ". It took 13 questions: 1,300 tokens read, 13 written." in page
    own = [push.text for push in context.lookup.value_tokens(context.store.cells.address(71))][:10]
    assert all(json.dumps(own, ensure_ascii=False) in one for one in asked[1:7])


def test_a_language_model_that_is_silent_is_watched_and_left_alone(context: StudyContext) -> None:
    """The page says which question it waits for; once stopped, the next search need not wait."""
    answers = threading.Event()

    def silent(_messages: Sequence[Message]) -> Reply:
        answers.wait(LONGEST)
        return Reply("too late", 1, 1)

    slow = replace(context, explainer=Explainer("slow", silent))
    try:
        with TestClient(create_app(slow), base_url="http://127.0.0.1:8600") as client:
            job = client.post("/api/memories/L2.7/explanation").json()
            path = f"/api/jobs/{job['number']}"
            wait_until(lambda: "question 1" in client.get(path).json()["doing"], "the question")
            assert client.delete(path).json()["state"] == "stopped"
            other = slow.jobs.start([context.store.cells.address(3)], "other", nothing_found)
            wait_until(lambda: not slow.jobs.job(other.number).busy, "the other")  # type: ignore[union-attr]
            assert not answers.is_set()
    finally:
        answers.set()


def nothing_found(_finder: PatternFinder, key: Address) -> KeyFinding:
    return KeyFinding(key, "rules", 0, (), (), 0, 0)


def test_replies_that_are_no_answer_end_in_one_sentence(context: StudyContext) -> None:
    weak = replace(context, explainer=Explainer("weak", lambda _: Reply("1. The pattern is", 9, 4)))
    with TestClient(create_app(weak), base_url="http://127.0.0.1:8600") as client:
        job = finish(client, client.post("/api/memories/L2.7/explanation").json())
    assert job["state"] == "failed"
    assert job["error"].startswith("weak gave no answer of the right form in 3 tries")
    assert job["error"].endswith("start the explorer with a larger model")


def test_without_a_language_model_the_page_does_not_offer_one(client: TestClient) -> None:
    assert "/explanation" not in client.get("/memory/L2.7").text
    answer = client.post("/api/memories/L2.7/explanation")
    assert "--llm" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [('{"list": "B"}', "B"), (' {"list" : "A"} ok', "A"), ("B.", "B"), ("neither", None)],
)
def test_the_choice_is_read_from_a_reply(reply: str, expected: str | None) -> None:
    assert list_choice(reply) == expected


def test_whoever_knows_the_tokens_is_always_right() -> None:
    def knows(messages: Sequence[Message]) -> Reply:
        first = messages[-1]["content"].splitlines()[1]
        return Reply(f'{{"list": "{"A" if "mine" in first else "B"}"}}', 1, 1)

    assert share_right(knows, ["it"], ["mine"], [["other"], ["third"]]) == 1.0
    assert share_right(lambda _: Reply("?", 1, 1), ["it"], ["mine"], [["other"]]) == 0.5


def test_matched_memories_fire_most_nearly_as_often(context: StudyContext) -> None:
    store, key = context.store, context.store.cells.address(71)
    others = matched_memories(store, key, 3)
    assert key not in others
    fires = {cell: store.counts(cell).fires for cell in store.cells.in_layer(2, range(64))}
    apart = sorted(abs(fires[cell] - fires[key]) for cell in fires if cell != key and fires[cell])
    # The measure is the ratio of rates, so allow the neighbours of the third nearest.
    assert all(abs(fires[cell] - fires[key]) <= apart[5] for cell in others)


def test_the_command_line_names_the_language_model() -> None:
    from ffmem.cli.commands.study import load_explainer

    assert load_explainer(None, None, "KEY") is None
    with pytest.raises(FfmemError, match="needs --llm"):
        load_explainer(None, "http://127.0.0.1:1/v1", "KEY")
    found = load_explainer("toy", "http://127.0.0.1:1/v1", "KEY")
    assert found is not None
    assert found.annotator == "llm:toy"
