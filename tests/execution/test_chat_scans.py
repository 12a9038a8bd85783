"""Scans of conversations: the template is read, and no trigger ends in it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ffmem
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.corpus.sentences import Sentences, tokenise
from ffmem.corpus.shards import shards
from ffmem.corpus.sources import Source, documents
from ffmem.errors import CorpusError
from ffmem.execution.plan import ScanPlan, scan_key, sentence_settings
from ffmem.execution.run import run_scan
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.store.scan_store import ScanStore
from tests.execution.small_scans import plan_for, sentences

TEMPLATE = (
    "{% if messages[0].role != 'system' %}<be brief>{% endif %}"
    "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }};{% endfor %}"
)


@pytest.fixture(scope="module", params=["llama", "mixtral"])
def chatty(request: pytest.FixtureRequest) -> LanguageModel:
    model = load(f"tiny:{request.param}")
    assert model.tokenizer is not None
    model.tokenizer.chat_template = TEMPLATE
    return model


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    said = [text[:22] for text in sentences(60)]
    rows = [
        {"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}
        for a, b in zip(said[::2], said[1::2], strict=True)
    ]
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def chat_plan(model: LanguageModel, path: Path) -> ScanPlan:
    return plan_for(model, path, source=Source(str(path), "messages", chat=True))


def text_of(model: LanguageModel, plan: ScanPlan) -> Sentences:
    (shard,) = shards(documents(plan.source))
    return tokenise(shard, model.tokenizer, sentence_settings(model, plan))


def test_no_trigger_ends_in_the_template_and_coefficients_are_those_of_a_plain_pass(
    chatty: LanguageModel, talks: Path, tmp_path: Path
) -> None:
    plan = chat_plan(chatty, talks)
    store = run_scan(chatty, plan, tmp_path / "scan")
    text = text_of(chatty, plan)
    assert text.content is not None
    lead = [] if chatty.bos is None else [chatty.bos]
    best: dict[tuple[int, int, int], list[float]] = defaultdict(list)  # by layer, memory, sign
    counts = 0
    for row in range(len(text)):
        ids = text.token_ids(row).tolist()
        own = text.content[text.starts[row] : text.starts[row + 1]][: len(ids) - 1].nonzero()[0]
        counts += len(own)
        for reading in record(chatty, torch.tensor([lead + ids]), "m"):
            m = reading.m[0][torch.from_numpy(own) + len(lead)]
            for sign in (1, -1):
                for memory, value in enumerate((sign * m).amax(0).tolist()):
                    best[reading.layer.number, memory, sign].append(max(value, 0.0))
    assert store.manifest.counts["prefixes"] == counts
    for row, cell in enumerate(store.cells.addresses(range(store.cells.count))):
        found = store.triggers(cell)
        parts = chatty.layer(cell.layer).parts
        memory = parts.index(cell, chatty.name)
        sign = -1 if cell.sign == "-" else 1
        wanted = sorted(best[cell.layer, memory, sign], reverse=True)[: len(found)]
        assert [one.coefficient for one in found] == pytest.approx(wanted, rel=1e-4, abs=1e-5), row
        for one in (*found, *store.triggers(cell, "sample")):
            at = int(text.starts[one.sentence] + one.position - 1)
            assert text.content[at], cell


def test_a_study_draws_its_prefixes_from_content_and_from_plain_text_all(
    chatty: LanguageModel, talks: Path, corpus: Path, tmp_path: Path
) -> None:
    plan = chat_plan(chatty, talks)
    store = run_scan(chatty, plan, tmp_path / "scan")
    text, sample = text_of(chatty, plan), StudyInputs(chatty, store).sample
    assert text.content is not None
    for number, position in zip(sample.numbers.tolist(), sample.positions.tolist(), strict=True):
        assert text.content[text.starts[number] + position - 1]
    plain = StudyInputs(chatty, store, valid=Source(str(corpus))).sample
    assert not plain.texts[0].startswith("<be brief>")


def test_the_key_knows_the_template_and_a_model_without_one_is_refused(
    chatty: LanguageModel, talks: Path, tmp_path: Path
) -> None:
    plan = chat_plan(chatty, talks)
    store = run_scan(chatty, plan, tmp_path / "scan")
    key = store.manifest.key
    assert ScanStore.open(tmp_path / "scan").manifest.key.source() == plan.source
    assert key.sentence_settings().chat
    plain = replace(plan, source=replace(plan.source, chat=False))
    assert {"corpus.chat", "corpus.chat_template"} <= set(key.differences(scan_key(chatty, plain)))
    bare = load("tiny:llama")
    with pytest.raises(CorpusError, match="no chat template; leave chat out"):
        run_scan(bare, plan, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_python_scans_conversations_that_a_program_holds(
    chatty: LanguageModel, talks: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line)["messages"] for line in talks.read_text().splitlines()]
    here = ffmem.run_scan(chatty, rows, tmp_path / "memory", chat=True, top=3)
    there = ffmem.run_scan(chatty, str(talks), tmp_path / "file", chat=True, top=3)
    cell = next(iter(here.store.cells.addresses([0])))
    one, other = (list(study.store.triggers(cell)) for study in (here, there))
    assert one
    assert one == other
