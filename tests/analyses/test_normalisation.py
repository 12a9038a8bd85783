from __future__ import annotations

import math

import pytest
import torch

from ffmem.analyses.inputs.layer_readings import record_sample
from ffmem.analyses.inputs.normalised_layers import normalised_layer
from ffmem.analyses.normalisation.charts import FIGURES
from ffmem.analyses.normalisation.measure import measure
from ffmem.memories.neural_memory import neural_memory
from ffmem.memories.projection import logits
from ffmem.memories.recording import LayerRecord, record
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.language_model import LanguageModel
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap
from tests.analyses.conftest import KINDS, toy_named
from tests.analyses.test_prefix_sample import sample_for


def read(model: LanguageModel, text: str) -> list[LayerRecord]:
    """Every layer after the last tokens of a text and of its beginning: two places."""
    tokens = model.encode(f"{text}\n{text}")[:, : len(text)]
    both = torch.cat([tokens, tokens.flip(1)])
    at = torch.tensor([both.shape[1] - 1, both.shape[1] - 2])
    return list(record(model, both, "am", at=at))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_those_of_a_slow_loop_over_memories(kind: str) -> None:
    model = toy_named(kind)
    for reading in read(model, "winter market"):
        layer = reading.layer
        values = value_vectors(layer).double()
        lengths = values.norm(dim=1)
        found = normalised_layer(model, reading, lengths.float(), torch.tensor([1, 0]))
        sums, own = [], []
        for row in range(2):
            scores, total = reading.a[row].double(), torch.zeros(layer.width).double()
            most = float(scores.max())
            whole = sum(math.exp(float(score) - most) for score in scores)
            strength = []
            for index, score in enumerate(scores.tolist()):
                weight = math.exp(score - most) / whole
                weight *= 1.0 if reading.u is None else float(reading.u[row, index])
                total += weight * values[index]
                strength.append(abs(weight) * float(lengths[index]))
            effective = sum(strength) ** 2 / sum(one**2 for one in strength)
            assert float(found["effective"][row]) == pytest.approx(effective, rel=1e-3)
            sums.append(total)
            own.append(sum(m * v for m, v in zip(reading.m[row].double(), values, strict=True)))
        for name, at in (("cosine", (0, 1)), ("foreign_cosine", (1, 0))):
            for row in range(2):
                one, other = sums[row], own[at[row]]
                cosine = float(one @ other / one.norm() / other.norm())
                assert float(found[name][row]) == pytest.approx(cosine, abs=1e-4)
        ratio = [float(sums[row].norm() / own[row].norm()) for row in range(2)]
        assert found["length"].tolist() == pytest.approx(ratio, rel=1e-3)
        tops = [
            logits(model, torch.stack(x).float(), "direction").argmax(dim=1) for x in (sums, own)
        ]
        assert found["same_top"].tolist() == (tops[0] == tops[1]).float().tolist()
        assert found["foreign_same_top"].tolist() == (tops[0] == tops[1].flip(0)).float().tolist()


@torch.no_grad()
def test_a_plain_layer_with_a_softmax_is_the_neural_memory_of_its_keys() -> None:
    """The keys' bias is one more direction, along which every x is 1."""
    model = toy_named("opt")
    (reading, *_) = record(model, "river", "xam", at=torch.tensor([3]))
    layer, ones = reading.layer, torch.ones(1)
    biases = (reading.a - reading.x @ layer.keys.T)[0]
    keys = torch.cat([layer.keys, biases[:, None]], dim=1)
    own = reading.m[0] @ layer.values
    y = neural_memory(keys, layer.values, torch.cat([reading.x[0], ones]))
    found = normalised_layer(model, reading, layer.values.norm(dim=1), torch.zeros(1).long())
    assert float(found["cosine"]) == pytest.approx(float(y @ own / y.norm() / own.norm()), abs=1e-4)
    assert math.isnan(found["foreign_cosine"])
    assert math.isnan(found["foreign_same_top"])


@torch.no_grad()
def test_where_the_softmax_is_one_hot_the_best_keys_value_is_all_there_is() -> None:
    hf = tiny_model("opt")
    with torch.no_grad():
        first = hf.model.decoder.layers[1].fc1
        first.weight.mul_(1e4)
        first.bias.mul_(1e4)
    model = wrap(hf, tiny_tokenizer(), "sharp")
    reading = read(model, "garden engine")[1]
    values = reading.layer.values
    found = normalised_layer(model, reading, values.norm(dim=1), torch.tensor([1, 0]))
    assert found["effective"].tolist() == pytest.approx([1, 1], rel=1e-3)
    for row in range(2):
        only, own = values[reading.a[row].argmax()], reading.m[row] @ values
        expected = float(only @ own / only.norm() / own.norm())
        assert float(found["cosine"][row]) == pytest.approx(expected, abs=1e-3)
        assert expected < 0.99  # the layer adds up the values of many keys
        length = float(only.norm() / own.norm())
        assert float(found["length"][row]) == pytest.approx(length, rel=1e-2)


def test_mixtures_are_left_out_and_nothing_is_drawn_without_a_layer() -> None:
    model = wrap(tiny_model("mixtral"), tiny_tokenizer(), "mixture")
    found = measure(record_sample(model, sample_for(model, 6)), torch.Generator())
    assert found.layers == ()
    assert found.left_out == len(model.layers)
    assert not any(figure.drawn_if(found) for figure in FIGURES)


def test_shares_and_means_are_those_of_the_places(relu: LanguageModel) -> None:
    reading = record_sample(relu, sample_for(relu, 24))
    found = measure(reading, torch.Generator().manual_seed(0))
    numbers = reading.normalised
    for place, layer in enumerate(found.layers):
        assert layer.cosine.estimate == pytest.approx(float(numbers.cosine[:, place].mean()))
        same = numbers.same_top[:, place]
        assert layer.same_top.estimate == pytest.approx(float(same.mean()))
        assert layer.cosine.n == layer.same_top.n == 24
        assert layer.shuffled_cosine.n <= 24
        assert 1 <= layer.effective[2] <= layer.memories
    panels = FIGURES[0].chart(found).to_dict()["hconcat"]
    assert [len(one["data"]["values"]) for one in panels] == [2 * len(found.layers)] * 3
