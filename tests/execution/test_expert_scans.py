"""The scan of a mixture of experts, against a plain loop over sentences, places and experts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ffmem.address import Address, Parts
from ffmem.errors import AddressError, ModelError
from ffmem.execution.plan import memory, shortage
from ffmem.execution.run import run_scan
from ffmem.memories.edits import edited
from ffmem.memories.recording import record
from ffmem.models.experts.routing import experts_in
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.manifest import FORMAT
from ffmem.store.memory_page import memory_page
from ffmem.store.scan_store import ScanStore
from ffmem.store.search.lookup import MemoryIndex
from tests.cli.test_commands import run
from tests.execution.small_scans import plan_for, sentences


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    """A dense layer, then two of four experts, two of them chosen, with one that all share."""
    return wrap(tiny_model("deepseek_v3"), tiny_tokenizer())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(sentences(91)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def store(
    model: LanguageModel, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> ScanStore:
    return run_scan(model, plan_for(model, corpus), tmp_path_factory.mktemp("scan") / "out")


def plain_loop(model: LanguageModel, line: str) -> Tensor:
    """The routed coefficients of the last layer [column, memory]: no code of the package's."""
    return plain_routing(model, line)[0]


def plain_routing(model: LanguageModel, line: str) -> tuple[Tensor, Tensor]:
    """The same, and the router's weights [column, expert], 0 where one is not chosen."""
    experts: Any = experts_in(model.model)[-1]
    calls: list[tuple[Tensor, ...]] = []

    def note(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        calls.append(args)

    handle = experts.register_forward_pre_hook(note)
    with torch.no_grad():
        model.model(model.encode(line))
    handle.remove()
    hidden, index, weights = calls[0]
    count, _, size = experts.down_proj.shape
    found, chosen = torch.zeros(len(hidden), count * size), torch.zeros(len(hidden), count)
    for place in range(len(hidden)):
        for expert, weight in zip(index[place].tolist(), weights[place].tolist(), strict=True):
            gate, up = (experts.gate_up_proj[expert].detach() @ hidden[place]).chunk(2)
            own = slice(expert * size, (expert + 1) * size)
            chosen[place, expert] = weight
            found[place, own] = weight * nn.functional.silu(gate) * up
    return found, chosen


def test_triggers_and_counts_are_those_of_a_full_sort_over_a_plain_loop(
    model: LanguageModel, corpus: Path, store: ScanStore
) -> None:
    """Equal sentences tie, so a place is right when its own coefficient is that of its rank."""
    every = {}
    for number, line in enumerate(corpus.read_text(encoding="utf-8").splitlines()):
        m = plain_loop(model, line)[1:-1]  # column p: p tokens read
        every[number] = torch.cat([m, -m], dim=1)
    assert len(every) == 100
    layer, routed = 3, every[0].shape[1] // 2
    best = torch.stack([m.amax(dim=0) for m in every.values()]).clamp(min=0)
    strongest = best.sort(dim=0, descending=True).values[:6]
    fires = sum((m > 0).sum(0) for m in every.values())
    memories = store.memories[layer]
    for cell, expected in enumerate(strongest.T.tolist()):
        sign, memory = divmod(cell, routed)
        address = store.cells.in_layer(layer, [sign * memories + memory])[0]
        assert address == Address(layer, memory % 16, "+-"[sign], f"E{memory // 16}")
        found = store.triggers(address)
        stored = [t.coefficient for t in found] + [0.0] * (6 - len(found))
        assert stored == pytest.approx(expected, rel=1e-4, abs=1e-5)
        own = [float(every[t.sentence][t.position - 1, cell]) for t in found]
        assert own == pytest.approx(expected[: len(own)], rel=1e-4, abs=1e-5)
        assert len({t.sentence for t in found}) == len(found)
        positive = store.counts(address).positive
        assert positive is not None
        assert abs(positive - int(fires[cell])) <= 1  # one may round to 0


def test_router_weights_and_counts_of_experts_are_those_of_a_plain_loop(
    model: LanguageModel, corpus: Path, store: ScanStore
) -> None:
    lines = corpus.read_text(encoding="utf-8").splitlines()
    every = [tuple(one[1:-1] for one in plain_routing(model, line)) for line in lines]
    for expert, counts in enumerate(store.experts(3)):
        own = slice(expert * 16, (expert + 1) * 16)
        weights = torch.cat([weight[:, expert] for _, weight in every])
        m = torch.cat([coefficients[:, own] for coefficients, _ in every])
        assert counts.routed == int((weights > 0).sum())
        assert counts.mean_weight == pytest.approx(float(weights[weights > 0].mean()), rel=1e-4)
        strong = (m[weights > 0].abs() > store.threshold(3)).float().mean()
        assert counts.fire_rate == pytest.approx(float(strong), abs=2 / max(counts.routed, 1))
        for cell in (Address(3, 5, sign, f"E{expert}") for sign in ("+", "-")):
            found = store.triggers(cell)
            assert len(found) > 2
            for trigger in found:
                weight = every[trigger.sentence][1][trigger.position - 1, expert]
                assert trigger.weight == pytest.approx(float(weight), rel=2e-3)
    assert store.experts(1) == ()
    for address in ("L1.5+", "L3.S.2+"):
        assert all(one.weight is None for one in store.triggers(Address.parse(address)))


def test_show_has_a_column_of_router_weights(
    store: ScanStore, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(store.folder.root)
    weight = store.triggers(Address.parse("L3.E1.5+"))[0].weight
    assert weight is not None
    code, out, _ = run(capsys, "show", root, "L3.E1.5+")
    assert code == 0
    assert f"weight {weight:.3f} " in out
    code, out, _ = run(capsys, "show", root, "L3.E1.5+", "--json")
    page = json.loads(out)
    assert page["triggers"][0]["weight"] == weight
    expert = page["counts"]["expert"]
    assert (expert["routed"], expert["fire_rate"]) == (
        store.experts(3)[1].routed,
        store.experts(3)[1].fire_rate,
    )
    code, out, _ = run(capsys, "show", root, "L1.5+")
    assert "weight" not in out


def test_search_narrows_to_an_expert(store: ScanStore, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(store.folder.root)
    words = ("--where", "expert=E1", "--where", "layer=3", "--sort", "fire_rate", "--json")
    code, out, _ = run(capsys, "search", root, *words, "-n", "100")
    assert code == 0
    hits = json.loads(out)["hits"]
    assert {hit["address"] for hit in hits} == {f"L3.E1.{i}{s}" for i in range(16) for s in "+-"}
    fires = [hit["fires"] for hit in hits]
    assert fires == sorted(fires, reverse=True)
    assert fires == [store.counts(Address.parse(hit["address"])).fires for hit in hits]
    code, _, said = run(capsys, "search", root, "--where", "expert=E9")
    assert code == 2
    assert "there are E0, E1, E2, E3, S" in said
    code, _, said = run(capsys, "search", root, "--sort", "expert")
    assert code == 2
    assert "has no order" in said


def test_shared_experts_and_dense_layers_are_those_of_a_full_sort(
    model: LanguageModel, corpus: Path, store: ScanStore
) -> None:
    lines = corpus.read_text(encoding="utf-8").splitlines()
    readings = [record(model, line, "m") for line in lines]
    for address in map(Address.parse, ("L1.40-", "L2.S.3+", "L3.S.15-", "L2.E3.0+")):
        sign, index = -1 if address.sign == "-" else 1, model.index_of(address)
        m = [sign * one.layer(address.layer).m[0, 1:-1, index] for one in readings]
        strongest = sorted((max(0.0, float(one.max())) for one in m), reverse=True)[:6]
        stored = [t.coefficient for t in store.triggers(address)]
        assert stored + [0.0] * (6 - len(stored)) == pytest.approx(strongest, rel=1e-4, abs=1e-5)


def test_batches_and_layers_do_not_change_the_answer(
    model: LanguageModel, corpus: Path, store: ScanStore, tmp_path: Path
) -> None:
    small = run_scan(model, plan_for(model, corpus, budget=130), tmp_path / "small")
    last = run_scan(model, plan_for(model, corpus, layers=[3]), tmp_path / "last")
    assert small.manifest.counts["prefixes"] == store.manifest.counts["prefixes"]
    expected = store.array("trigger_coefficients")
    np.testing.assert_allclose(small.array("trigger_coefficients"), expected, rtol=1e-4, atol=1e-5)
    own = expected[store.cells.rows_of(3)]
    np.testing.assert_allclose(last.array("trigger_coefficients"), own, rtol=1e-4, atol=1e-5)


def test_the_store_knows_the_parts_without_the_model(store: ScanStore) -> None:
    again = ScanStore.open(store.folder.root)
    assert again.manifest.format == FORMAT
    assert {layer: parts.experts for layer, parts in again.manifest.mixtures.items()} == {
        2: 4,
        3: 4,
    }
    rows = range(again.cells.count)
    cells = again.cells.addresses(list(rows))
    assert [again.cells.row(cell) for cell in cells] == list(rows)
    assert len(set(cells)) == again.cells.count
    assert {str(cells[0]), "L2.E3.15+", "L3.S.15-"} <= set(map(str, cells))


def test_experts_are_counted_with_their_weights(
    model: LanguageModel, corpus: Path, store: ScanStore
) -> None:
    lines = corpus.read_text(encoding="utf-8").splitlines()
    weights = torch.cat([record(model, line, "w").layer(3).w[0, 1:-1, :4] for line in lines])
    for expert in range(4):
        found = store.counts(Address(3, 0, "+", f"E{expert}")).expert
        chosen = weights[:, expert][weights[:, expert] != 0]
        assert found is not None
        assert found.routed == len(chosen)
        assert found.mean_weight == pytest.approx(float(chosen.mean()), rel=1e-4)
    assert store.counts(Address(3, 0, "+", "S")).expert is None
    assert (
        "expert E1 is chosen for"
        in memory_page(MemoryIndex.at_once(store), Address.parse("L3.E1.0+")).frequency
    )


def test_chosen_experts_have_what_a_whole_scan_gives_them(
    model: LanguageModel, corpus: Path, store: ScanStore, tmp_path: Path
) -> None:
    some = run_scan(model, plan_for(model, corpus, experts=[3, 1]), tmp_path / "some")
    assert some.manifest.key.settings["experts"] == [1, 3]
    assert some.manifest.mixtures[2] == Parts(2, 16, (16,), (1, 3))
    cells = some.cells.addresses(list(range(some.cells.count)))
    assert {cell.part for cell in cells} == {"", "E1", "E3", "S"}
    assert [some.cells.row(cell) for cell in cells] == list(range(some.cells.count))
    rows = [store.cells.row(cell) for cell in cells]
    np.testing.assert_array_equal(some.array("fires"), store.array("fires")[rows])
    expected = store.array("trigger_coefficients")[rows]
    np.testing.assert_allclose(some.array("trigger_coefficients"), expected, rtol=1e-4, atol=1e-5)
    for cell in ("L3.E3.5+", "L2.E1.0-"):
        address = Address.parse(cell)
        assert some.counts(address).expert == store.counts(address).expert
        mine, theirs = (MemoryIndex.at_once(one).value_tokens(address) for one in (some, store))
        assert mine == theirs
    with pytest.raises(AddressError, match="with the parts E1, E3 and S"):
        some.cells.resolve(Address.parse("L2.E0.1"))


def test_a_model_with_chosen_experts_runs_as_before(model: LanguageModel) -> None:
    some = model.with_experts([1, 3])
    assert some.experts == (1, 3)
    assert model.with_experts(None) is model
    assert some.with_experts([0]).experts == (0,)
    whole, part = (record(one, "the river runs", "mwy").layer(3) for one in (model, some))
    torch.testing.assert_close(part.y, whole.y)
    columns = [model.index_of(Address(3, i, "", f"E{e}")) for e in (1, 3) for i in range(16)]
    assert torch.equal(part.m[..., :32], whole.m[..., columns])
    assert torch.equal(part.w, whole.w[..., [1, 3, 4]])
    assert torch.equal(some.layer(3).values[:32], model.layer(3).values[columns])
    assert torch.equal(some.layer(3).values_at([0, 17, 40]), some.layer(3).values[[0, 17, 40]])
    with edited(some, ["L3.E3=0"]):
        silenced = record(some, "the river runs", "y").layer(3).y
    with edited(model, ["L3.E3=0"]):
        torch.testing.assert_close(silenced, record(model, "the river runs", "y").layer(3).y)


def test_experts_that_are_not_there_are_refused(model: LanguageModel) -> None:
    with pytest.raises(ModelError, match="has experts 0 to 3 in a layer"):
        model.with_experts([2, 4])
    with pytest.raises(ModelError, match="has no experts to choose from"):
        wrap(tiny_model("llama")).with_experts([0])


def test_the_plan_counts_experts_and_says_what_to_lower(model: LanguageModel, corpus: Path) -> None:
    plan = plan_for(model, corpus)
    whole, few = memory(model, plan), memory(model, replace(plan, experts=[0]))
    cells = 2 * 2 * 3 * 16  # of three experts in two layers
    assert whole - few >= 3 * cells * (12 * (6 + 5) + 8 * 32)  # slots and a histogram
    assert whole - memory(model, replace(plan, layers=[1])) >= 3 * 2 * 2 * 5 * 16 * 12 * (6 + 5)
    assert shortage(model, plan, room=whole) is None
    words = shortage(model, replace(plan, budget=None), room=1)
    assert words is not None
    assert all(name in words for name in ("--top (6)", "--sample (5)", "--layers or --experts"))
    dense = wrap(tiny_model("llama"))
    words = shortage(dense, plan_for(dense, corpus), room=1)
    assert words is not None
    assert "--experts" not in words


def test_a_batch_of_a_mixture_counts_the_experts_that_run(model: LanguageModel) -> None:
    assert [layer.memories_per_place for layer in model.layers] == [64, 2 * 16 + 16, 2 * 16 + 16]
