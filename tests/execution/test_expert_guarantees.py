"""What a scan promises, for mixtures of experts too: workers, stops, odd routers, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from ffmem.address import Address
from ffmem.analyses.analysis import Sizes
from ffmem.analyses.experts.record import Experts
from ffmem.analyses.inputs.study_inputs import StudyInputs
from ffmem.analyses.runner import run_analyses
from ffmem.analyses.study import Study, open_study
from ffmem.execution.run import run_scan, run_scan_by
from ffmem.execution.worker import ModelChoice
from ffmem.explorer.app import create_app
from ffmem.explorer.context import open_context
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.report.build import summarise
from ffmem.report.comparison import compare
from ffmem.store.memory_page import memory_page
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from tests.execution.local_executor import LocalExecutor
from tests.execution.small_scans import plan_for, same_store, sentences

KIND = "tiny:deepseek_v3"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(sentences(300)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def many_small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ffmem.corpus.shards.SHARD_BYTES", 2000)


@pytest.mark.parametrize("experts", [None, [1, 3]])
def test_local_work_makes_the_store_of_one_process(
    corpus: Path, tmp_path: Path, experts: list[int] | None
) -> None:
    """Workers that are killed are in `test_distributed.py`, with the same model."""
    model = load(KIND)
    plan = plan_for(model, corpus, experts=experts)
    run_scan(model, plan, tmp_path / "expected")
    run_scan_by(LocalExecutor, ModelChoice(KIND), plan, tmp_path / "local")
    same_store(tmp_path / "expected", tmp_path / "local")


def test_a_stopped_scan_goes_on_and_ends_as_if_never_stopped(corpus: Path, tmp_path: Path) -> None:
    model = load(KIND)
    plan = plan_for(model, corpus)
    run_scan(model, plan, tmp_path / "whole")
    calls = 0

    def stop(_progress: object, _share: object) -> None:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_scan(model, plan, tmp_path / "parts", stop)
    run_scan(load(KIND), plan, tmp_path / "parts")
    same_store(tmp_path / "whole", tmp_path / "parts")


def never_chosen(model: Any) -> None:
    """Expert 2 loses every choice."""
    for layer in model.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias[2] = -100.0


def always_tied(model: Any) -> None:
    """Experts 0 and 1 have the same score everywhere."""
    for layer in model.model.layers:
        layer.mlp.gate.weight[1] = layer.mlp.gate.weight[0]


ROUTERS: dict[str, tuple[str, dict[str, Any], Callable[[Any], None]]] = {
    "never chosen": ("deepseek_v3", {}, never_chosen),
    "tied": ("qwen3_moe", {}, always_tied),
    "all chosen": ("mixtral", {"num_experts_per_tok": 4}, lambda _: None),
    "one expert": ("mixtral", {"num_local_experts": 1, "num_experts_per_tok": 1}, lambda _: None),
}


@torch.no_grad()
def odd_model(name: str) -> LanguageModel:
    kind, changes, change = ROUTERS[name]
    inner = tiny_model(kind, **changes)
    change(inner)
    return wrap(inner, tiny_tokenizer(), kind)


@pytest.mark.parametrize("name", ROUTERS)
def test_odd_routers_are_scanned_as_a_plain_loop_scans(name: str, tmp_path: Path) -> None:
    model, lines = odd_model(name), sentences(25)
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    store = run_scan(model, plan_for(model, path), tmp_path / "out")
    readings = [record(model, line, "mw").layer(3) for line in lines]
    m = torch.cat([one.m[0, 1:-1] for one in readings])
    w = torch.cat([one.w[0, 1:-1] for one in readings])
    rows = store.cells.rows_of(3)
    both = torch.cat([m, -m], dim=1)
    # a coefficient at the edge of zero may fall on either side of it
    found = torch.from_numpy(store.array("fires")[rows].astype(np.int64))
    assert ((both > 1e-6).sum(dim=0) <= found).all()
    assert (found <= (both > -1e-6).sum(dim=0)).all()
    largest = torch.from_numpy(np.array(store.array("largest")[rows]))
    torch.testing.assert_close(largest, both.amax(dim=0).clamp(min=0), rtol=1e-4, atol=1e-5)
    experts = model.layer(3).parts.experts
    routed = [one.routed for one in store.experts(3)]
    assert routed == (w[:, :experts] != 0).sum(dim=0).tolist()
    if name == "never chosen":
        assert routed[2] == 0
        assert not store.triggers(Address.parse("L3.E2.0+"))
        assert store.counts(Address.parse("L3.E2.0+")).fires == 0
    if name == "all chosen":
        assert routed == [len(m)] * 4


def some_results(kind: str, corpus: Path, out: Path) -> Study:
    model = odd_model(kind) if kind in ROUTERS else load(kind)
    store: ScanStore = run_scan(model, plan_for(model, corpus, max_sentences=60), out)
    inputs = StudyInputs(model, store, Sizes(sample=20))
    names = ("values", "experts") if store.manifest.mixtures else ("values",)
    events = run_analyses(inputs, names, out)
    assert {event.state for event in events} == {"made"}, events
    return open_study(out)


def test_mixtures_are_compared_with_each_other_and_with_dense_models(
    corpus: Path, tmp_path: Path
) -> None:
    results = partial(some_results, corpus=corpus)
    one = results("never chosen", out=tmp_path / "one")
    other = results(KIND, out=tmp_path / "other")
    dense = results("tiny:llama", out=tmp_path / "dense")
    names = {figure.name for figure in compare([summarise(one), summarise(other)]).figures}
    assert {"experts-load", "experts-output", "values-agreement"} <= names
    mixed = {figure.name for figure in compare([summarise(one), summarise(dense)]).figures}
    assert "values-agreement" in mixed
    assert not any(name.startswith("experts") for name in mixed)
    found: Experts = one.result("experts")
    unused = [use for use in found.experts if use.load == 0]
    assert [(use.layer, use.expert) for use in unused] == [(2, 2), (3, 2)]
    assert all(np.isnan(use.specialisation) for use in unused)
    assert [layer.unused for layer in found.layers] == [1, 1]
    page = memory_page(MemoryIndex.at_once(one.store), Address.parse("L2.E2.0+"))
    assert page.frequency.endswith("expert E2 is never chosen")
    app = create_app(open_context(tmp_path / "one"))
    with TestClient(app, base_url="http://127.0.0.1:8600") as asking:
        assert "never chooses its expert" in asking.get("/memory/L2.E2.0+").text
        rows = asking.get("/experts").text.partition('id="experts-title"')[2].split("<tr>")
        (row,) = (row for row in rows if "L2.E2<" in row)
    assert "nan" not in row
    assert row.count("–") == 6  # all but how often it is chosen, and its share of the sum
