"""What the model says of one memory, against the analyses and against plain torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.analysis import SMALL_SIZES
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.removal.saliency import saliency
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import open_study
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.memories.edits import Edit, edited
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.store.memory_page import memory_page, stored_coefficients
from tests.near_ties import assert_strongest


@pytest.fixture
def model(explored: StudyContext) -> LanguageModel:
    return load(explored.live.name)


@pytest.fixture
def lively(client: TestClient) -> str:
    """A memory with triggers of several tokens."""
    hits = client.get("/api/search", params={"by": "words", "q": "the river"}).json()["hits"]
    return str(hits[0]["address"])


def test_saliency_is_that_of_the_removal_analysis(
    client: TestClient, explored: StudyContext, model: LanguageModel, lively: str
) -> None:
    cell = Address.parse(lively)
    trigger = explored.store.triggers(cell)[1]
    row = explored.store.sentences.row(trigger.sentence)
    ids = explored.store.sentences.token_ids(row)[: trigger.position].tolist()
    expected = saliency(model, cell, ids)
    found = client.get(f"/api/memories/{lively}/saliency", params={"trigger": 2}).json()
    assert "".join(one["token"] for one in found["tokens"]) == trigger.before + trigger.last
    assert [one["change"] for one in found["tokens"]] == pytest.approx(expected, abs=0.01)
    missing = client.get(f"/api/memories/{lively}/saliency", params={"trigger": 60_000})
    assert missing.status_code == 404


def test_nearest_are_the_largest_cosines(
    client: TestClient, model: LanguageModel, lively: str
) -> None:
    cell = Address.parse(lively)
    values = torch.cat([layer.values for layer in model.layers]).float().detach()
    memories = model.layer(1).memories
    mine = values[(cell.layer - 1) * memories + cell.index]
    cosines = torch.nn.functional.cosine_similarity(values, mine[None])
    found = client.get(f"/api/memories/{lively}/nearest", params={"count": 3}).json()
    near = [Address.parse(one["address"]) for one in found["by_value"]]
    assert {one.sign for one in near} == {cell.sign}
    rows = [(one.layer - 1) * memories + one.index for one in (cell, *near)]
    assert_strongest(rows, cosines)  # itself first
    for row, one in zip(rows[1:], found["by_value"], strict=True):
        assert one["cosine"] == pytest.approx(float(cosines[row]), abs=1e-3)
    assert len(found["by_key"]) == 3
    assert lively not in [one["address"] for one in found["by_key"]]


def test_coefficients_along_a_trigger_are_those_of_the_model(
    client: TestClient, explored: StudyContext, model: LanguageModel, lively: str
) -> None:
    cell = Address.parse(lively)
    found = client.get(f"/api/memories/{lively}/coefficients", params={"load": True}).json()
    assert found["source"] == "model"
    assert found["largest"] == pytest.approx(explored.store.counts(cell).largest)
    by_number = {one["sentence"]: one for one in found["sentences"]}
    page = client.get(f"/api/memories/{lively}").json()["page"]
    shown = [*page["triggers"], *(one for band in page["bands"] for one in band["examples"])]
    assert shown
    for trigger in shown:
        text = by_number[trigger["sentence"]]
        whole = "".join(trigger[part] for part in ("before", "last", "next", "rest"))
        assert "".join(text["tokens"]) == whole
        at = text["coefficients"][trigger["position"] - 1]
        assert at == pytest.approx(trigger["coefficient"], rel=2e-3, abs=1e-5)
    text = by_number[page["triggers"][0]["sentence"]]
    slow = record(model, "".join(text["tokens"]), "m").layer(cell.layer).m[0, :, cell.index]
    slow = -slow if cell.sign == "-" else slow
    lead = 0 if model.bos is None else 1
    assert text["coefficients"] == pytest.approx(slow[lead:].tolist(), rel=2e-3, abs=1e-4)


def test_any_text_is_coloured(client: TestClient, model: LanguageModel, lively: str) -> None:
    cell, text = Address.parse(lively), "the river <b>and</b> the stone"
    found = client.get(f"/api/memories/{lively}/text", params={"text": text}).json()
    assert "".join(found["tokens"]) == text
    slow = record(model, text, "m").layer(cell.layer).m[0, :, cell.index]
    slow = (-slow if cell.sign == "-" else slow)[0 if model.bos is None else 1 :]
    assert found["coefficients"] == pytest.approx(slow.tolist(), rel=2e-3, abs=1e-4)


def test_without_the_model_coefficients_are_those_that_the_study_keeps(
    explored: StudyContext, model: LanguageModel, tmp_path: Path
) -> None:
    """And where neither is there the answer says what to do."""
    folder = tmp_path / "study"
    shutil.copytree(explored.store.folder.root, folder)
    cell = explored.store.cells.address(3)
    context = open_context(folder, explored.live.name)
    with TestClient(create_app(context), base_url="http://127.0.0.1:8600") as client:
        path = f"/api/memories/{cell}/coefficients"
        nothing = client.get(path).json()
        assert nothing["source"] is None
        assert "--only coefficients" in nothing["advice"]
        assert not context.live.ready  # the page alone loads no model
        store = context.store
        run_analyses(StudyInputs(model, store, SMALL_SIZES), ("coefficients",), folder)
        sizes = open_study(folder).result("coefficients")
        assert 0 < sizes.bytes <= sizes.budget
        known = stored_coefficients(store)
        assert known is not None
        assert len(set(known.rows.tolist())) == sizes.cells
        first = store.cells.address(int(known.rows[0]))
        kept = client.get(f"/api/memories/{first}/coefficients").json()
        assert kept["source"] == "study"
        read = client.get(f"/api/memories/{first}/coefficients", params={"load": True}).json()
        assert read["source"] == "model"
        assert [one["tokens"] for one in kept["sentences"]] == [
            one["tokens"] for one in read["sentences"]
        ]
        for one, other in zip(kept["sentences"], read["sentences"], strict=True):
            tolerance = 2e-3 * read["largest"]
            assert one["coefficients"] == pytest.approx(
                other["coefficients"], rel=2e-3, abs=tolerance
            )
        page = memory_page(context.lookup, first)
        along = {one.sentence: one for one in page.along}[page.triggers[0].sentence]
        assert along.coefficients[page.triggers[0].position - 1] == pytest.approx(
            page.triggers[0].coefficient, rel=5e-3
        )


def test_neighbours_come_with_their_tokens_and_a_trigger(
    client: TestClient, explored: StudyContext, lively: str
) -> None:
    found = client.get(f"/api/memories/{lively}/nearest", params={"count": 3}).json()
    for near in (*found["by_key"], *found["by_value"]):
        cell = Address.parse(near["address"])
        expected = [push.text for push in explored.lookup.value_tokens(cell, count=5)]
        assert near["promotes"] == expected
        triggers = explored.store.triggers(cell)
        assert (near["trigger"] is None) == (len(triggers) == 0)
        if len(triggers):
            assert near["trigger"]["last"] == triggers[0].last


@pytest.mark.parametrize(("edit", "amount"), [("silence", 0.0), ("boost", 3.0), ("hold", 2.5)])
def test_a_change_moves_the_distribution_as_an_edit_does(
    client: TestClient,
    explored: StudyContext,
    model: LanguageModel,
    lively: str,
    edit: str,
    amount: float,
) -> None:
    cell = Address.parse(lively)
    trigger = explored.store.triggers(cell)[0]
    tokens = model.encode(trigger.before + trigger.last)
    change = Edit(cell, "scale" if edit == "boost" else "set", amount, (tokens.shape[1] - 1,))
    with torch.no_grad():
        before = model.model(tokens).logits[0, -1, : model.vocab_size].log_softmax(-1)
        with edited(model, [change]):
            after = model.model(tokens).logits[0, -1, : model.vocab_size].log_softmax(-1)
    expected = float((before.exp() * (before - after)).sum())
    asked = {"edit": edit, "amount": amount, "triggers": 1}
    found = client.get(f"/api/memories/{lively}/effect", params=asked).json()
    assert found["kl"] == pytest.approx(expected, rel=1e-2, abs=1e-6)
    first = found["triggers"][0]
    assert first["next"] == trigger.next
    chances = [one["before"] for one in first["chances"]]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == pytest.approx(float(before.exp().max()), rel=1e-3)
    control = Address.parse(first["control"])
    expected = control_effect(model, (cell, control), tokens, change)
    assert found["control_kl"] == pytest.approx(expected, rel=1e-2, abs=1e-6)
    promoted = [
        {
            one.token
            for one in explored.lookup.value_tokens(
                explored.store.cells.resolve(named)[0], count=10
            )
        }
        for named in (cell, control)
    ]
    assert explored.store.cells.signed or not promoted[0] & promoted[1]
    unchanged = {"edit": "boost", "amount": 1.0}
    same = client.get(f"/api/memories/{lively}/effect", params=unchanged).json()
    assert same["kl"] == pytest.approx(0, abs=1e-6)
    assert same["control_kl"] == pytest.approx(0, abs=1e-6)


@torch.no_grad()
def control_effect(
    model: LanguageModel, pair: tuple[Address, Address], tokens: torch.Tensor, change: Edit
) -> float:
    """KL of the same change of the control; held, it adds a vector as long as the memory would."""
    lengths = model.layer(pair[0].layer).values.float().norm(dim=1)
    ratio = float(lengths[pair[0].index] / lengths[pair[1].index])
    amount = change.amount * (ratio if change.action == "set" else 1.0)
    before = model.model(tokens).logits[0, -1, : model.vocab_size].log_softmax(-1)
    with edited(model, [Edit(pair[1], change.action, amount, change.positions)]):
        after = model.model(tokens).logits[0, -1, : model.vocab_size].log_softmax(-1)
    return float((before.exp() * (before - after)).sum())


def test_a_phrase_finds_the_memories_that_fire_on_it(
    client: TestClient, explored: StudyContext, model: LanguageModel
) -> None:
    trigger = explored.store.triggers(explored.lookup.store.cells.address(3))[0]
    phrase = trigger.before + trigger.last
    answer = client.get("/api/search", params={"by": "phrase", "q": phrase, "count": 500}).json()
    hit = next(
        hit
        for hit in answer["hits"]
        if hit["address"] == str(explored.lookup.store.cells.address(3))
    )
    assert hit["score"] * hit["largest"] == pytest.approx(trigger.coefficient, rel=1e-3)
    assert client.get("/search", params={"by": "phrase", "q": phrase}).status_code == 200
    assert client.get("/api/search", params={"by": "phrase", "q": " "}).json()["total"] == 0


def test_a_text_too_long_for_the_model_is_a_sentence(client: TestClient) -> None:
    answer = client.get("/api/search", params={"by": "phrase", "q": "x" * 400})
    assert answer.status_code == 400
    assert "give between 1 and" in answer.json()["detail"]
