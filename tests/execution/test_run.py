"""The scan from text to store, against the slow and obvious way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ffmem.address import Address
from ffmem.errors import CorpusError
from ffmem.execution import single_process
from ffmem.execution.plan import token_budget
from ffmem.execution.run import run_scan
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.scan.settings import ScanSettings
from ffmem.store.search.lookup import MemoryIndex
from tests.execution.same_answer import same_answer
from tests.execution.small_scans import plan_for, sentences


def by_brute_force(model: LanguageModel, corpus: Path, layer: int) -> dict[int, torch.Tensor]:
    """Every sentence's coefficients, [position - 1, cell], by a forward pass of its own."""
    found = {}
    for number, line in enumerate(corpus.read_text(encoding="utf-8").splitlines()):
        m = record(model, line, "m").layer(layer).m[0]  # column p: p tokens read
        m = m[1 : m.shape[0] - 1]
        found[number] = torch.cat([m, -m], dim=1) if model.gated else m
    return found


@pytest.mark.parametrize("kind", ["relu", "gated"])
def test_triggers_are_those_of_a_full_sort(
    kind: str, request: pytest.FixtureRequest, corpus: Path, tmp_path: Path
) -> None:
    """Equal sentences tie, so a place is right when its own coefficient is that of its rank."""
    model: LanguageModel = request.getfixturevalue(kind)
    store = run_scan(model, plan_for(model, corpus), tmp_path / "out")
    every = by_brute_force(model, corpus, 2)
    best = torch.stack([m.amax(dim=0) for m in every.values()]).clamp(min=0)
    strongest = best.sort(dim=0, descending=True).values[:6]
    for cell, expected in enumerate(strongest.T.tolist()):
        found = store.triggers(store.cells.in_layer(2, [cell])[0])
        stored = [t.coefficient for t in found] + [0.0] * (6 - len(found))
        assert stored == pytest.approx(expected, rel=1e-5, abs=1e-5)
        own = [float(every[t.sentence][t.position - 1, cell]) for t in found]
        assert own == pytest.approx(expected[: len(own)], rel=1e-5, abs=1e-5)
        assert len({t.sentence for t in found}) == len(found)


def test_i_love_dogs_has_the_prefixes_and_next_tokens_of_the_paper(
    relu: LanguageModel, tmp_path: Path
) -> None:
    """One byte is one token here, so the three words are three letters."""
    path = tmp_path / "dogs.txt"
    path.write_text("Ild\n")
    plan = plan_for(
        relu, path, settings=ScanSettings(top=9, sample=2, per_sentence="all", include_final=True)
    )
    store = run_scan(relu, plan, tmp_path / "out")
    seen = {
        (trigger.before + trigger.last, trigger.next)
        for index in range(64)
        for trigger in store.triggers(Address(2, index))
    }
    assert seen == {("I", "l"), ("Il", "d"), ("Ild", "")}


def test_batches_do_not_change_the_answer(
    relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    one = run_scan(relu, plan_for(relu, corpus), tmp_path / "one")
    other = run_scan(relu, plan_for(relu, corpus, budget=3000), tmp_path / "other")
    same_answer(relu, corpus, one, other)


def test_batches_of_several_shards_give_the_same_answer_in_fewer(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.corpus.shards.SHARD_BYTES", 500)
    plan, stores, batches = plan_for(relu, corpus, budget=4000), [], []
    for together in (1, 4):
        monkeypatch.setattr(single_process, "SHARD_SHARE", token_budget(relu, plan) // together)
        seen: list[int] = []
        stores.append(
            run_scan(relu, plan, tmp_path / str(together), lambda p, _, s=seen: s.append(p))
        )
        batches.append(len(seen))
    one, other = stores
    assert batches[1] < batches[0]
    same_answer(relu, corpus, one, other)


def test_memory_that_runs_out_halves_the_batch_and_loses_nothing(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_scan(relu, plan_for(relu, corpus), tmp_path / "whole")
    second, limit = relu.layers[1].key_map.module, 6

    def scarce(_module: object, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].numel() > limit * 40 * 32:
            raise torch.OutOfMemoryError("CUDA out of memory (for the test)")

    handle = second.register_forward_pre_hook(scarce)
    try:
        found = run_scan(relu, plan_for(relu, corpus, budget=4000), tmp_path / "halved")
    finally:
        handle.remove()
    same_answer(relu, corpus, found, expected)


def test_chosen_layers_are_the_same_layers_of_a_full_scan(
    relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    whole = run_scan(relu, plan_for(relu, corpus), tmp_path / "whole")
    some = run_scan(relu, plan_for(relu, corpus, layers=[1, 2]), tmp_path / "some")
    assert some.manifest.layers == [(1, 64), (2, 64)]
    for address in (Address(1, 5), Address(2, 63)):
        assert list(some.triggers(address)) == list(whole.triggers(address))
        assert some.counts(address) == whole.counts(address)


def test_the_share_that_is_done_grows_to_all_of_it(
    relu: LanguageModel, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffmem.corpus.shards.SHARD_BYTES", 2000)
    shares: list[float | None] = []
    run_scan(relu, plan_for(relu, corpus), tmp_path / "out", lambda _, share: shares.append(share))
    known = [share for share in shares if share is not None]
    assert known == sorted(known)
    assert len(known) == len(shares)
    assert known[-1] == 1.0


def test_the_scan_leaves_the_model_as_it_was(
    relu: LanguageModel, corpus: Path, tmp_path: Path
) -> None:
    from tests.memories.test_recording import hooks_in

    tokens = relu.encode("river stone")
    before, hooks = relu.model(tokens).logits, hooks_in(relu.model)
    run_scan(relu, plan_for(relu, corpus), tmp_path / "out")
    assert torch.equal(relu.model(tokens).logits, before)
    assert hooks_in(relu.model) == hooks


def test_an_empty_corpus_leaves_nothing_behind(relu: LanguageModel, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    with pytest.raises(CorpusError, match="empty"):
        run_scan(relu, plan_for(relu, empty), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_planted_memory_is_found_with_its_pattern(tmp_path: Path) -> None:
    """A key that looks for one letter fires on that letter, and its value promotes another."""
    from ffmem.models.loading import load

    model = load("tiny:opt")
    planted, promoted = (int(model.encode(letter)[0, 1]) for letter in "zq")
    layer = model.layers[0]
    lines = [*sentences(60), "river z stone z light", "winter z market garden z engine"]
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines) + "\n")
    x = torch.cat([record(model, line, "x").layer(1).x[0] for line in lines])
    wanted = torch.cat([model.encode(line)[0] for line in lines]) == planted
    weights = torch.where(wanted, 300.0, 1.0)  # as there are few of them
    squares = (weights * x.T) @ x + 0.1 * torch.eye(x.shape[1])
    key = torch.linalg.solve(squares, x.T @ (weights * wanted))
    scores = x @ key
    weakest, strongest_other = float(scores[wanted].min()), float(scores[~wanted].max())
    assert weakest > strongest_other + 0.1  # rounding cannot cross the middle
    with torch.no_grad():
        layer.key_map.weight[5] = key
        layer.key_map.module.bias[5] = -(weakest + strongest_other) / 2  # type: ignore[operator]
        layer.value_map.weight[:, 5] = model.head.embedding[promoted]
    store = run_scan(model, plan_for(model, path), tmp_path / "out")
    triggers = store.triggers(Address(1, 5))
    assert [trigger.last for trigger in triggers] == ["z", "z"]  # one of each sentence
    assert store.counts(Address(1, 5)).fires == 4
    lookup = MemoryIndex.at_once(store)
    assert lookup.value_tokens(Address(1, 5))[0].text == "q"
    assert lookup.store.cells.address(lookup.promoters(promoted).rows[0]) == Address(1, 5)
    assert lookup.store.cells.address(lookup.ending_in(planted).rows[0]) == Address(1, 5)
