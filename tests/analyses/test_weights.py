"""Weights in numbers: each statistic equals its plain formula; planted memories are found."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.weights.measure import (
    OUTLIER_DEVIATIONS,
    robust_scores,
    summarise_weights,
    table_columns,
    weight_table,
)
from ffmem.memories import weight_statistics
from ffmem.memories.folded_weights import folded_weights, norm_before
from ffmem.memories.projection import PAPER_LENS, additive, logits
from ffmem.memories.value_vectors import value_vectors
from ffmem.memories.weight_statistics import (
    GATED_CLASSES,
    PLAIN_CLASSES,
    classify,
    unembedding,
)
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from ffmem.store.search.columns import NUMBERS, WORDS, write_columns

# plain and gated, tied and untied, fused gate and key, Conv1D, parallel, norms before and behind
KINDS = ["opt", "gpt2", "llama", "gpt_neox", "gemma2", "phi3", "bloom", "granite", "post-norm"]


def toy(kind: str) -> LanguageModel:
    if kind == "post-norm":
        return wrap(tiny_model("opt", do_layer_norm_before=False), tiny_tokenizer(), kind)
    return wrap(tiny_model(kind), tiny_tokenizer(), kind)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def plain_cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


@pytest.mark.parametrize("kind", KINDS)
def test_folded_keys_read_the_residual_as_the_layer_does(kind: str) -> None:
    """gain, shift and mean of the norm are in key and bias: a = (k . r) / size + bias."""
    model = toy(kind)
    layer = model.layers[1]
    r = torch.randn(5, layer.width, generator=generator()) * 3 + 1
    norm = norm_before(layer)
    with torch.no_grad():
        x = r if norm is None else layer.norm(r)  # type: ignore[misc]
        expected = x @ layer.keys.T + (0 if layer.key_map.bias is None else layer.key_map.bias)
    weights = folded_weights(model, layer)
    size = torch.ones(5, 1) if norm is None else norm.size(r)
    torch.testing.assert_close(
        r @ weights.keys.T / size + weights.key_bias, expected, atol=2e-4, rtol=2e-4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_equals_its_plain_formula(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weight_statistics.TILES, "cpu", (7, 50))  # several tiles on a toy
    model = toy(kind)
    table = weight_table(model, generator())
    layer = model.layers[2]
    columns = {name: column.double() for name, column in table.layers[2].columns.items()}
    weights = folded_weights(model, layer)
    linear = replace(model, head=replace(model.head, softcap=None))
    every = logits(linear, torch.eye(model.hidden_size), "direction").double()  # [width, token]
    centred = every - every.mean(dim=1, keepdim=True)
    words = every.shape[1]
    frequency = torch.tensor([-math.log(token + 1) for token in range(words)]).double()
    for index in (0, 5, layer.memories - 1):
        value = weights.values[index].double()
        raw = value_vectors(layer)[index].detach().double()
        z = value @ every
        spread = (z - z.mean()).square().mean()
        cosines = torch.tensor([plain_cosine(value, centred[:, token]) for token in range(words)])
        expected = {
            "key_norm": weights.keys[index].norm(),
            "value_norm": value.norm(),
            "key_value": plain_cosine(weights.keys[index].double(), value),
            "logit_mean": z.mean(),
            "logit_variance": spread,
            "logit_skew": ((z - z.mean()) ** 3).mean() / spread**1.5,
            "logit_kurtosis": ((z - z.mean()) ** 4).mean() / spread**2,
            "cosine_variance": cosines.double().var(correction=0),
            "frequency": torch.corrcoef(torch.stack([z, frequency]))[0, 1],
        }
        if weights.gates is not None:
            gate = weights.gates[index].double()
            expected["gate_value"] = plain_cosine(gate, value)
            expected["gate_key"] = plain_cosine(gate, weights.keys[index].double())
        for name, number in expected.items():
            assert float(columns[name][index]) == pytest.approx(float(number), abs=2e-4), name
        # a mean that the final norm takes away changes no logit
        with_mean = raw @ every
        assert float((with_mean - with_mean.mean() - (z - z.mean())).abs().max()) < 1e-4
        weak = torch.linalg.svd(centred)[0][:, -2:]  # a twentieth of 32, rounded up
        share = (value @ weak).square().sum() / value.square().sum()
        assert float(columns["weak_share"][index]) == pytest.approx(float(share), abs=1e-3)
        best = max(
            min(
                plain_cosine(side[index], side[other])
                for side in (weights.keys, weights.gates, weights.values)
                if side is not None
            )
            for other in range(layer.memories)
            if other != index
        )
        assert float(columns["twin_cosine"][index]) == pytest.approx(best, abs=1e-4)


def test_classes_are_those_of_the_signs_of_the_cosines() -> None:
    sides = (-0.9, -0.5, 0.1, 0.5, 0.9)
    names = {1: "strengthening", -1: "weakening"}
    for key_value, gate_value, gate_key in product(sides, repeat=3):
        a, g, k = (
            1 if c > 0.5 else -1 if c < -0.5 else 0 for c in (key_value, gate_value, gate_key)
        )
        if not a and not g:
            expected = "orthogonal output"
        else:
            expected = f"{'' if g else 'conditional '}{names[a]}" if a else "proportional change"
            expected = expected if k == a * g else f"atypical {expected}"
        cosines = [torch.tensor([c]) for c in (key_value, gate_value, gate_key)]
        assert GATED_CLASSES[int(classify(*cosines))] == expected
        plain = {1: "strengthening", 0: "orthogonal output", -1: "weakening"}[a]
        assert PLAIN_CLASSES[int(classify(cosines[0]))] == plain


@pytest.fixture(scope="module")
def planted() -> LanguageModel:
    """A GPT-2 of 400 memories with six planted into its last layer."""
    hf = tiny_model("gpt2", n_inner=400, n_embd=64, tie_word_embeddings=False)
    model = wrap(hf, tiny_tokenizer(), "planted")
    weights, block = folded_weights(model, model.layers[2]), hf.transformer.h[2].mlp
    with torch.no_grad():
        hf.lm_head.weight[40] *= 3
        linear = logits(model, torch.eye(64), "direction")  # [width, token]
        one = weights.keys[0] / weights.keys[0].norm()
        block.c_proj.weight[0] = 2 * one + 0.1 * torch.randn(64)
        block.c_proj.weight[1] = -2 * weights.keys[1] / weights.keys[1].norm()
        centred = linear - linear.mean(dim=1, keepdim=True)
        axes = torch.linalg.eigh(centred @ centred.T).eigenvectors
        block.c_proj.weight[2] = 9 * axes[:, 1]  # long, and nearly no logit moves; 0 is the mean
        block.c_proj.weight[3] = centred[:, 40] / 3
        block.c_fc.weight[:, 5] = block.c_fc.weight[:, 4]
        block.c_proj.weight[5] = block.c_proj.weight[4] * 1.5
    return model


def test_planted_memories_are_found(planted: LanguageModel) -> None:
    table = weight_table(planted, generator())
    found = summarise_weights(table, generator())
    columns = table_columns(table)
    last = {name: column[columns["layer"] == 3] for name, column in columns.items()}
    assert last["class"][0] == "strengthening"
    assert last["class"][1] == "weakening"
    assert found.entropy[0].address == Address(3, 2)
    assert found.entropy[0].score > OUTLIER_DEVIATIONS
    assert {one.address for one in found.duplicates} == {Address(3, 4), Address(3, 5)}
    assert last["role"][3] == "prediction"
    assert last["logit_kurtosis"][3] > 10
    layer = found.layers[2]
    assert layer.duplicates == 2
    assert layer.prediction == (last["role"] == "prediction").sum() > 0
    assert layer.suppression == (last["role"] == "suppression").sum()
    assert sum(layer.classes.values()) == layer.memories == 400
    assert sum(layer.mismatched_classes.values()) == pytest.approx(400)


def test_what_stands_out_of_a_mixture_is_named_with_its_expert() -> None:
    model = toy("qwen2_moe")
    experts = model.model.model.layers[1].mlp.experts
    with torch.no_grad():  # memory 5 of expert 2 as memory 4 of expert 1
        for half in (0, experts.down_proj.shape[2]):
            experts.gate_up_proj[2, half + 5] = experts.gate_up_proj[1, half + 4]
        experts.down_proj[2, :, 5] = experts.down_proj[1, :, 4]
    found = summarise_weights(weight_table(model, generator()), generator())
    assert {str(one.address) for one in found.duplicates} == {"L2.E1.4", "L2.E2.5"}


def test_the_table_of_a_mixture_names_every_memory_by_its_expert() -> None:
    model = toy("deepseek_v3")
    columns = table_columns(weight_table(model, generator()))
    own = zip(*(columns[name].tolist() for name in ("layer", "expert", "memory")), strict=True)
    names = [".".join(filter(None, (f"L{layer}", part, str(i)))) for layer, part, i in own]
    assert names == [
        str(layer.parts.address(layer.number, index))
        for layer in model.layers
        for index in range(layer.memories)
    ]
    assert names[63:65] + names[-1:] == ["L1.63", "L2.E0.0", "L3.S.15"]


def test_mismatched_pairs_of_random_weights_are_like_their_own(planted: LanguageModel) -> None:
    """Layers without planted memories: 5 % of pairs lie outside what 95 % of mismatched do."""
    found = summarise_weights(weight_table(planted, generator()), generator())
    for layer in found.layers[:2]:
        assert layer.cosines["key_value"].outside < 0.12
        assert layer.entropy <= 2
        assert layer.duplicates == 0


def test_token_frequency_is_the_texts_where_there_is_one(planted: LanguageModel) -> None:
    counts = torch.randint(0, 1000, (planted.vocab_size,), generator=generator())
    table = weight_table(planted, generator(), counts, "a text")
    assert table.frequency_from == "a text"
    linear = logits(planted, torch.eye(64), "direction").double()
    z = folded_weights(planted, planted.layers[0]).values[3].double() @ linear
    expected = torch.corrcoef(torch.stack([z, torch.log1p(counts.double())]))[0, 1]
    assert float(table.layers[0].columns["frequency"][3]) == pytest.approx(
        float(expected), abs=1e-4
    )


def test_robust_scores_leave_the_many_near_zero() -> None:
    numbers = torch.cat([torch.linspace(-1, 1, 101), torch.tensor([50.0])])
    scores = robust_scores(numbers)
    assert scores[-1] > 50
    assert scores[:-1].abs().max() < 2


def test_the_columns_are_those_that_search_knows(planted: LanguageModel, tmp_path: Path) -> None:
    for model in (planted, toy("llama")):
        columns = table_columns(weight_table(model, generator()))
        known = {*NUMBERS, *WORDS, "layer", "index", "twin"}
        gate = {name for name in NUMBERS if name.startswith("gate")}
        assert set(columns) == (known if model.gated else known - gate)
        write_columns(tmp_path / "t.csv", columns)
        lines = (tmp_path / "t.csv").read_text().splitlines()
        assert len(lines) == 1 + model.memories
        first = dict(zip(lines[0].replace('"', "").split(","), lines[1].split(","), strict=True))
        assert float(first["value_norm"]) == pytest.approx(float(columns["value_norm"][0]))
        assert np.isfinite(columns["logit_kurtosis"]).all()


@pytest.mark.parametrize("kind", ["fairseq_lm", "gemma2", "opt"])
def test_a_values_logits_add_up_whatever_the_head(kind: str) -> None:
    """An adaptive softmax or a soft cap would make those of a sum other than the sum of logits."""
    model = load(f"tiny:{kind}", device="cpu")
    seen = unembedding(model)
    one, other = torch.randn(2, model.hidden_size, generator=torch.Generator().manual_seed(0))
    every = torch.cat([part for _, part in seen.tiles(7)], dim=1) + seen.mean[:, None]
    assert (len(seen.bands) > 1) == (kind == "fairseq_lm")
    assert all(each.untyped_storage().nbytes() < every.nbytes for _, each in seen.bands[1:])
    expected = logits(model, one + other, "direction", additive(PAPER_LENS))
    torch.testing.assert_close(one @ every + other @ every, expected, rtol=1e-4, atol=1e-5)
