"""The prompt page's answer: the same as the command line's, sums that check, bounds that hold."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.lookup.measure import layer_lookup
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.explorer.queries.start import agreeing_triggers, prompt_examples
from ffmem.memories.edits import Edit, edited, parse_edits
from ffmem.memories.prompt_answer import PromptQuestion, prompt_answer
from ffmem.memories.prompt_explanation import explain_prompt
from ffmem.memories.why.answer import why
from ffmem.models.fairseq.conversion import convert
from ffmem.models.loading import load
from tests.explorer.conftest import small_study
from tests.models.fairseq_files import write_toy

TEXT = "the river and the stone"


def asked(client: TestClient, **parameters: Any) -> dict[str, Any]:
    answer = client.get("/api/prompt", params={"text": TEXT, **parameters})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_answer_is_what_looking_by_hand_gives(
    client: TestClient, explored: StudyContext
) -> None:
    model = load(explored.live.name)
    found = asked(client, position=4)
    expected = explain_prompt(model, TEXT, 4)
    assert "".join(found["tokens"]) == TEXT
    assert [step["winner"] for step in found["plain"]["steps"]] == [
        step.winner for step in expected.steps
    ]
    best = found["chances"][0]
    assert best["id"] == expected.likeliest(1)[0] == found["token"]["id"]
    assert best["plain"] == pytest.approx(float(expected.distribution.max()))
    assert found["edited"] is None


def test_terms_sum_to_the_models_logit(client: TestClient, explored: StudyContext) -> None:
    model = load(explored.live.name)
    with torch.no_grad():
        logits = model.model(input_ids=model.encode(TEXT)).logits[0, -1]
    for token in (3, 40):
        why = asked(client, token=token)["plain"]["explanation"]
        terms = [sum(v for k, v in layer.items() if k != "layer") for layer in why["layers"]]
        total = why["start"] + sum(terms) + why["constant"]
        assert total == pytest.approx(why["total"], abs=1e-9)
        assert total == pytest.approx(float(logits[token]), abs=1e-4)


def test_a_layer_is_drawn_with_what_its_keys_fire_on(
    client: TestClient, explored: StudyContext
) -> None:
    """As the command draws it, and a layer that there is not is refused in one sentence."""
    question = {"text": TEXT, "layer": "2", "position": "4", "edit": "L2.7=3"}
    answer = client.get("/api/prompt/picture.svg", params=question)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("image/svg+xml")
    asked = PromptQuestion(TEXT, 4)
    edits = [Edit.parse("L2.7=3")]
    found = layer_lookup(load(explored.live.name), asked, 2, explored.store, edits)
    names = {str(one.address) for one in found.shown}
    assert {name for name in names if f">{name}" in answer.text} == names
    assert any(one.stands_for for one in found.shown)
    refused = client.get("/api/prompt/picture.svg", params={**question, "layer": "99"})
    assert refused.status_code == 404, refused.text
    assert "has no layer 99" in refused.json()["detail"]


def test_an_adaptive_head_is_explored(tmp_path: Path) -> None:
    store = small_study(tmp_path / "study", "tiny:fairseq_lm")
    explored = open_context(store.folder.root, "tiny:fairseq_lm")
    with TestClient(create_app(explored), base_url="http://127.0.0.1:8600") as client:
        why = asked(client, token=200, write=4)["plain"]["explanation"]
        assert asked(client, token=200)["chances"][0]["plain"] > 0
        for page in ("/api/overview", "/api/memories/L2.7"):
            assert client.get(page).status_code == 200, page
    model = load("tiny:fairseq_lm")
    with torch.no_grad():
        own = model.model(input_ids=model.encode(TEXT)).logits[0, -1, 200]
    assert why["total"] == pytest.approx(float(own), abs=1e-4)


def test_silencing_the_strongest_memory_changes_the_view(
    client: TestClient, explored: StudyContext
) -> None:
    model = load(explored.live.name)
    plain = asked(client, write=6)
    address = plain["plain"]["explanation"]["strongest"][0]["address"]
    changed = asked(client, write=6, edit=[f"{address}=0", "L1.3*2"])
    assert changed["plain"] == plain["plain"]
    assert changed["moved"] > 0
    assert plain["plain"]["explanation"]["terms"][address] != 0
    assert changed["edited"]["explanation"]["terms"][address] == 0
    with edited(model, [f"{address}=0", "L1.3*2"]):
        expected = model.generate(TEXT, 6, plain["position"])
    assert changed["edited"]["continuation"] == expected
    assert changed["edits"] == [f"{address}=0", "L1.3*2"]


def test_a_token_is_explained_by_silencing(client: TestClient, explored: StudyContext) -> None:
    question = {"text": TEXT, "position": "6", "token": "40"}
    answer = client.get("/api/why", params=question | {"top": "5"}).json()
    found = why(load(explored.live.name), TEXT, 40, position=6, top=5)
    assert [one["address"] for one in answer["effects"]] == [str(e.address) for e in found.effects]
    for name in ("direct", "predicted", "true"):
        expected = [getattr(one, name) for one in found.effects]
        assert [one[name] for one in answer["effects"]] == pytest.approx(expected, abs=1e-5)
    assert all(one["notes"]["triggers"] for one in answer["memories"])
    graph = client.get("/api/why/graph.svg", params=question)
    edges = why(load(explored.live.name), TEXT, 40, position=6, top=20, edges=True).edges
    assert edges
    assert {f">{edge.source}<" in graph.text for edge in edges} == {True}
    for wrong, status in (({"position": "99"}, 400), ({"top": "101"}, 422), ({"text": ""}, 422)):
        assert client.get("/api/why", params=question | wrong).status_code == status


def test_a_word_names_its_token(client: TestClient, explored: StudyContext) -> None:
    tokenizer = load(explored.live.name).tokenizer
    assert tokenizer is not None
    found = asked(client, word=")")
    assert found["token"]["id"] == tokenizer.convert_tokens_to_ids(")")


@pytest.mark.parametrize(
    ("parameters", "status", "says"),
    [
        ({"text": ""}, 422, "text"),
        ({"text": "a" * 20_001}, 422, "text"),
        ({"text": "ab " * 900}, 400, "tokens"),
        ({"text": TEXT, "position": 99}, 400, "positions 1 to"),
        ({"text": TEXT, "position": 0}, 400, "positions 1 to"),
        ({"text": TEXT, "write": 65}, 422, "write"),
        ({"text": TEXT, "token": 9_999_999}, 400, "not a token of"),
        ({"text": TEXT, "word": "of rivers"}, 400, "not one token of"),
        ({"text": TEXT, "edit": "L1.3"}, 400, "is not an edit"),
        ({"text": TEXT, "edit": "L1.3=1e300"}, 400, "too large"),
        ({"text": TEXT, "edit": "L99.3=0"}, 404, "no layer 99"),
        ({"text": TEXT, "edit": "L1.3=0@x"}, 400, "names no positions"),
        ({"text": TEXT, "chat": "true"}, 400, "no chat template"),
        ({"text": TEXT, "edit": [f"L1.{n % 60}=0" for n in range(257)]}, 422, "edit"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    client: TestClient, parameters: dict[str, Any], status: int, says: str
) -> None:
    answer = client.get("/api/prompt", params=parameters)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"]


def test_an_edit_at_some_positions_is_that_edit_there(
    client: TestClient, explored: StudyContext
) -> None:
    model = load(explored.live.name)
    found = asked(client, edit=["L2.7*9@3,5-6"], write=4)
    assert found["edits"] == ["L2.7*9@3,5-6"]
    there = Edit(Address(2, 7), "scale", 9.0, (3, 5, 6))
    with edited(model, [there]):
        expected = explain_prompt(model, TEXT)
    (best,) = [one for one in found["chances"] if one["id"] == expected.likeliest(1)[0]]
    assert best["edited"] == pytest.approx(float(expected.distribution.max()), abs=1e-6)
    behind = asked(client, position=2, edit=["L2.7*9@3,5-6"])
    assert behind["moved"] == pytest.approx(0, abs=1e-6)


def test_the_limit_is_the_models_context(client: TestClient, explored: StudyContext) -> None:
    most = load(explored.live.name).context_length - 1
    assert asked(client)["most_tokens"] == most
    assert len(asked(client, text="a" * most)["tokens"]) == most
    answer = client.get("/api/prompt", params={"text": "a" * (most + 1)})
    assert answer.status_code == 400
    assert f"between 1 and {most:,}" in answer.json()["detail"]


def test_a_converted_model_writes_words_behind_words(tmp_path: Path) -> None:
    write_toy(tmp_path / "toy")
    model = load(str(convert(tmp_path / "toy", tmp_path / "out")), device="cpu")
    found = prompt_answer(model, PromptQuestion("word0, word1", write=2))
    assert found.tokens == ("word0", ",", " word1")
    assert found.plain.continuation.startswith(" ")
    assert found.plain.explanation is not None
    assert found.plain.explanation.quantity == "log-probability"


def test_an_answer_without_layers_says_the_rest_alike() -> None:
    model = load("tiny:opt")
    asked, edits = PromptQuestion(TEXT, strongest=None), parse_edits(["L1.3=0"])
    short, whole = (prompt_answer(model, one, edits) for one in (asked, PromptQuestion(TEXT)))
    assert short.edited is not None
    assert whole.edited is not None
    assert (short.plain.steps, short.edited.steps) == ((), ())
    assert len(whole.plain.steps) == len(model.layers)
    runs = (replace(one, steps=()) for one in (whole.plain, whole.edited))
    assert short == replace(whole, **dict(zip(("plain", "edited"), runs, strict=True)))


def test_a_chat_template_is_put_around_the_text() -> None:
    model = load("tiny:opt")
    assert model.tokenizer is not None
    model.tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}:"
    found = prompt_answer(model, PromptQuestion("hi", chat=True))
    assert "".join(found.tokens) == "<hi>:"


def test_the_page_has_examples_that_can_be_read(client: TestClient) -> None:
    page = client.get("/prompt").text
    links = [unescape(one) for one in re.findall(r'href="/prompt(\?text=[^"]*)"', page)]
    assert links
    for link in links:
        assert client.get(f"/api/prompt{link}").status_code == 200


def test_examples_are_texts_that_a_value_goes_on_with(
    explored: StudyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = explored.store.cells
    row = next(row for row in range(cells.count) if agreeing_triggers(explored, cells.address(row)))
    monkeypatch.setattr("ffmem.explorer.queries.start.agreeing_rows", lambda *_: [row])
    (example,) = prompt_examples.__wrapped__(explored)  # it is kept otherwise
    right = [one.before + one.last for _, one in agreeing_triggers(explored, cells.address(row))]
    assert example.text in right
    assert len(example.text) == min(map(len, right))
    assert example.edit == f"{cells.address(row)}=0"


def test_a_prompt_of_the_greatest_length_fits_into_an_address(client: TestClient) -> None:
    answer = client.get("/prompt", params={"text": "河" * 3000})
    assert answer.status_code == 200


def test_a_memory_says_what_it_fires_after_and_those_of_one_thing_stand_together(
    client: TestClient, explored: StudyContext
) -> None:
    terms = client.get("/api/prompt", params={"text": TEXT}).json()["plain"]["explanation"]
    for one in terms["strongest"]:
        (cell, *_) = explored.store.cells.resolve(Address.parse(one["address"]))
        first = explored.store.triggers(cell)[:1]
        assert len(one["notes"]["triggers"]) == min(3, len(explored.store.triggers(cell)))
        if len(first):
            assert first[0].last in one["notes"]["triggers"][0]
    noted = [one["notes"]["triggers"][:1] for one in terms["strongest"]]
    seen = [text for place, text in enumerate(noted) if not place or noted[place - 1] != text]
    assert len(seen) == len({str(text) for text in noted})


def test_the_end_of_a_text_is_a_mark() -> None:
    """Neither among next tokens nor in a continuation stands the name of a special token."""
    model = load("demo")
    answer = prompt_answer(model, PromptQuestion("The river runs to the sea.", write=24))
    texts = [one.text for one in answer.chances]
    assert "⏹" in texts
    written = answer.plain.continuation
    assert written
    assert not [text for text in (*texts, written) if "</s>" in text]
    assert answer.plain.explanation is not None
    parts = answer.plain.explanation
    every = sum(one.amount for one in parts.strongest) + parts.others
    assert every == pytest.approx(sum(layer.memories for layer in parts.layers))
