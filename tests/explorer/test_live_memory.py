"""What the model says of one memory, against the analyses and against plain torch."""

from __future__ import annotations

import pytest
import torch
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.removal import saliency
from ffmem.explorer.context import StudyContext
from ffmem.memories.edits import Edit, edited
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
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
    assert [one["change"] for one in found["tokens"]] == pytest.approx(expected.changes, abs=0.01)
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


def test_silencing_moves_the_distribution_as_an_edit_does(
    client: TestClient, explored: StudyContext, model: LanguageModel, lively: str
) -> None:
    cell = Address.parse(lively)
    trigger = explored.store.triggers(cell)[0]
    text = trigger.before + trigger.last
    tokens = model.encode(text)
    column = tokens.shape[1] - 1
    with torch.no_grad():
        before = model.model(tokens).logits[0, -1, : model.vocab_size].log_softmax(-1)
        with edited(model, [Edit(cell, "set", 0.0, (column,))]):
            after = model.model(tokens).logits[0, -1, : model.vocab_size].log_softmax(-1)
    expected = float((before.exp() * (before - after)).sum())
    found = client.get(f"/api/memories/{lively}/silenced", params={"triggers": 2}).json()
    first = found["triggers"][0]
    assert first["kl"] == pytest.approx(expected, rel=1e-2, abs=1e-6)
    assert first["next"] == trigger.next
    chances = [one["before"] for one in first["chances"]]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == pytest.approx(float(before.exp().max()), rel=1e-3)


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
