from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ffmem.address import Address
from ffmem.analyses.removal.charts import removal_chart
from ffmem.analyses.removal.measure import _random_tokens, _Triggers, _triggers, measure
from ffmem.analyses.removal.record import Removal
from ffmem.analyses.removal.saliency import saliency
from ffmem.analyses.removal.shortened_prefixes import (
    CoefficientQuery,
    ShortenedSentence,
    _rows_by_sentence,
    shortened_coefficients,
)
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.scan_store import ScanStore
from tests.analyses.conftest import scanned_lines


def slowly(model: LanguageModel, key: Address, ids: list[int]) -> float:
    """The coefficient at the end of `ids`, read alone."""
    lead = [] if model.bos is None else [model.bos]
    m = record(model, torch.tensor([lead + ids]), "m").layer(key.layer).m[0, -1, key.index].item()
    return max(-m if key.sign == "-" else m, 0.0)


def test_every_answer_is_what_the_shortened_prefix_gives_alone(toy: LanguageModel) -> None:
    generator = np.random.default_rng(0)
    sentences = [generator.integers(3, 250, size).astype(np.int32) for size in (2, 9, 14, 14)]
    questions = []
    for number, ids in enumerate(sentences):
        for position in range(2, len(ids) + 1):
            for gone in {0, 1, position, int(generator.integers(1, position + 1))}:
                sign = str(generator.choice(["+", "-"])) if toy.gated else ""
                layer = int(generator.integers(1, len(toy.layers) + 1))
                key = Address(layer, int(generator.integers(0, 20)), sign)  # type: ignore[arg-type]
                questions.append(
                    CoefficientQuery(key, ShortenedSentence(number, ids, gone), position)
                )
    answers = shortened_coefficients(toy, questions, budget=60)
    expected = [slowly(toy, q.key, q.text.until(q.position).tolist()) for q in questions]
    assert answers.clamp(min=0).tolist() == pytest.approx(expected, abs=2e-5)
    assert max(expected) > 0
    assert sum(map(len, _rows_by_sentence(questions))) < len(questions)


def test_removing_the_last_token_needs_no_pass_and_is_the_position_before(
    relu: LanguageModel,
) -> None:
    ids = relu.encode("a river to the sea")[0, 1:].numpy().astype(np.int32)
    m = record(relu, "a river to the sea", "m").layer(2).m[0]
    asked = [
        CoefficientQuery(Address(2, i), ShortenedSentence(0, ids, g), 9)
        for i in range(30)
        for g in (0, 9)
    ]
    answers = shortened_coefficients(relu, asked, budget=1000)
    assert sum(map(len, _rows_by_sentence(asked))) == 1
    assert torch.allclose(answers[0::2], m[9, :30], atol=1e-6)
    assert torch.allclose(answers[1::2], m[8, :30], atol=1e-6)


def test_the_layers_numbers_are_those_of_one_prefix_at_a_time(
    relu: LanguageModel, relu_store: ScanStore
) -> None:
    found = measure(relu, relu_store, keys=5, top=4, seed=3)
    for layer in found.layers:
        changes: dict[str, list[float]] = {"first": [], "last": [], "random": []}
        short = 0
        for name in found.drawn[layer.layer]:
            key = Address.parse(name)
            gone = dict(random_removals(relu_store, found, key, seed=3))
            for trigger in relu_store.triggers(key)[:4]:
                ids = relu_store.sentences.token_ids(
                    relu_store.sentences.row(trigger.sentence)
                ).tolist()
                ids = ids[: trigger.position]
                if len(ids) < 2:
                    short += 1
                    continue
                before = slowly(relu, key, ids)
                place = gone[trigger.sentence, trigger.position] - 1
                without = ids[:place] + ids[place + 1 :]
                for kind, left in (("first", ids[1:]), ("last", ids[:-1]), ("random", without)):
                    changes[kind].append(100 * (slowly(relu, key, left) - before) / before)
        assert (layer.triggers, layer.short) == (len(changes["last"]), short)
        assert layer.first.estimate == pytest.approx(np.mean(changes["first"]), abs=0.01)
        assert layer.last.estimate == pytest.approx(np.mean(changes["last"]), abs=0.01)
        assert layer.random.estimate == pytest.approx(np.mean(changes["random"]), abs=0.01)
        assert layer.last.low <= layer.last.estimate <= layer.last.high


def random_removals(
    store: ScanStore, found: Removal, key: Address, seed: int
) -> Iterator[tuple[tuple[int, int], int]]:
    """The token (from 1) drawn for each trigger of a key, by sentence and position."""
    keys = [Address.parse(name) for names in found.drawn.values() for name in names]
    triggers = _triggers(store, keys, found.top)
    drawn = _random_tokens(triggers, seed)
    for row in np.flatnonzero(triggers.key == keys.index(key)):
        number = int(store.sentences.numbers[triggers.sentence[row]])
        yield (number, int(triggers.position[row])), int(drawn[row])


def test_the_same_seed_draws_the_same_keys_and_another_seed_others(
    relu: LanguageModel, relu_store: ScanStore
) -> None:
    one, same = (measure(relu, relu_store, keys=4, top=3, seed=1) for _ in range(2))
    assert one == same
    assert one.drawn != measure(relu, relu_store, keys=4, top=3, seed=2).drawn


def test_gated_cells_are_measured_by_sign(gated: LanguageModel, gated_store: ScanStore) -> None:
    found = measure(gated, gated_store, keys=6, top=4)
    assert {name[-1] for names in found.drawn.values() for name in names} == {"+", "-"}
    assert all(layer.triggers > 0 for layer in found.layers)
    assert all(layer.last.low >= -100 for layer in found.layers)


def planted(relu: LanguageModel, token: str) -> LanguageModel:
    """Layer 1 without attention or positions, and all its keys one token's own direction."""
    hf = copy.deepcopy(relu.model)
    block = hf.model.decoder.layers[0]
    with torch.no_grad():
        hf.model.decoder.embed_positions.weight.zero_()
        block.self_attn.out_proj.weight.zero_()
        block.self_attn.out_proj.bias.zero_()
    model = wrap(hf, tiny_tokenizer(), "planted")
    every = record(model, torch.arange(3, 259)[:, None], "x").layer(1).x[:, 0]
    mine = record(model, model.encode(token), "x").layer(1).x[0, -1]
    others = (every @ mine).sort(descending=True).values
    assert others[0] > others[1] + 0.1  # the bias between them is clear of rounding
    with torch.no_grad():
        block.fc1.weight.copy_(mine.expand_as(block.fc1.weight))
        block.fc1.bias.fill_(-float(others[:2].mean()))
    return wrap(hf, tiny_tokenizer(), "planted")


def test_a_key_that_is_one_tokens_direction_loses_all_without_the_last_token(
    relu: LanguageModel, tmp_path: Path
) -> None:
    model = planted(relu, "q")
    lines = ["ab q is here", "then aq is there", "some liqor or other", "baq", "nothing at all"]
    store = scanned_lines(model, tmp_path / "scan", lines, top=4)
    layer = measure(model, store, keys=8, top=4).layers[0]
    assert layer.triggers == 8 * 3  # a sentence's last prefix is no trigger
    assert layer.last.estimate == -100
    assert layer.first.estimate == pytest.approx(0, abs=0.01)
    ids = model.encode("ab q")[0, 1:].tolist()
    seen = saliency(model, Address(1, 3), ids)
    assert seen[-1] == -100
    assert seen[:-1] == pytest.approx([0, 0, 0], abs=0.01)


def test_a_layer_whose_keys_are_all_dead_has_no_numbers(
    relu: LanguageModel, tmp_path: Path
) -> None:
    hf = copy.deepcopy(relu.model)
    with torch.no_grad():
        hf.model.decoder.layers[0].fc1.bias.fill_(-1e4)
    model = wrap(hf, tiny_tokenizer(), "a silent layer")
    store = scanned_lines(model, tmp_path / "scan", ["ab q is here", "then aq is there"])
    first, *others = measure(model, store, keys=8, top=4).layers
    assert (first.triggers, first.dead) == (0, 8)
    assert any(layer.triggers for layer in others)


def test_the_figure_shows_the_results_numbers(relu: LanguageModel, relu_store: ScanStore) -> None:
    result = measure(relu, relu_store, keys=3, top=3)
    drawn = removal_chart(result).to_dict()["data"]["values"]
    expected = [
        (layer.layer, f"{kind} token", getattr(layer, kind).estimate / 100)
        for layer in result.layers
        for kind in ("first", "last", "random")
    ]
    assert [(row["layer"], row["removed"], row["change"]) for row in drawn] == expected


def test_every_token_of_a_prefix_is_as_likely_to_be_removed() -> None:
    places = np.arange(6000)
    triggers = _Triggers([Address(1, 0)], places * 0, places, places * 0 + 6)
    tokens, counts = np.unique(_random_tokens(triggers, 7), return_counts=True)
    assert tokens.tolist() == [1, 2, 3, 4, 5, 6]
    share = len(places) / 6
    assert (abs(counts - share) < 5 * share**0.5).all()  # five standard errors


def test_layers_beyond_the_deepest_asked_about_are_never_run(relu: LanguageModel) -> None:
    ids = relu.encode("a river to the sea")[0, 1:].numpy().astype(np.int32)
    ran: list[int] = []
    handles = [
        layer.block.register_forward_hook(lambda *_, n=n: ran.append(n))
        for n, layer in enumerate(relu.layers, 1)
    ]
    shortened_coefficients(
        relu, [CoefficientQuery(Address(2, 0), ShortenedSentence(0, ids, 1), 9)], budget=100
    )
    record(relu, "a river", "m")
    for handle in handles:
        handle.remove()
    assert ran == [1, 2, 1, 2, 3]
